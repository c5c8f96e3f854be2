"""The command `shiftboss`: one file per noun. May call everything."""
