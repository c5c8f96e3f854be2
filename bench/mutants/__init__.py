"""Mutation testing of the queue's SQL and of the worker's core: see `python -m bench.mutants --help`."""
