"""Runs handlers: source, executor, heartbeat, limits, spool, the process's main. Calls db and lifecycle."""
