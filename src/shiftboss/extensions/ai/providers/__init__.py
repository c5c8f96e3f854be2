"""One module per provider. Vendor SDKs are imported only here."""
