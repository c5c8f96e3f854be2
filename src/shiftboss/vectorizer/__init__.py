"""Keeps embeddings in step with tables. Calls ai, db and worker's handler API."""
