"""The reference pages of the manual, generated from the code, the SQL, the protocol and the API."""
