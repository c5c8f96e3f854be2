"""Feeds workers over gRPC and does the fleet's leader duties. Calls db, lifecycle and worker.source."""
