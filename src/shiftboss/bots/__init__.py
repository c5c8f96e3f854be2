"""Long jobs over the places directory. Calls ai, db and worker's handler API."""
