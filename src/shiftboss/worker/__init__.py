"""One worker process: handlers, sources, executor, heartbeat, inbox, outbox, spool."""
