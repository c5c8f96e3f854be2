"""HTTP API, auth, metrics and the dashboard. Calls db.insights and the commands of the rooms below."""
