"""The one HTTP service: API, auth, metrics, events, dashboard. Calls db.insights and the rooms below."""
