"""One module per provider, and the only place where vendor SDKs are imported."""
