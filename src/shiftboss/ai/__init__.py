"""Providers, router, cache and prompts. Calls model, and db for what the fleet shares."""
