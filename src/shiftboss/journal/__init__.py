"""The journal-analysis pipeline as task handlers. Calls ai, db and worker's handler API."""
