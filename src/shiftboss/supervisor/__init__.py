"""Keeps the slots of this host alive: spawn, watch, restart, pause. Calls db and lifecycle."""
