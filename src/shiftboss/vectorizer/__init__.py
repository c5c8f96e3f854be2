"""Embeddings that follow tables, one file per stage. Calls ai, db and worker's handler API."""
