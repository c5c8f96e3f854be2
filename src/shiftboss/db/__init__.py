"""PostgreSQL: pool, migrations, embedded server, and one thin module per family of SQL functions. Calls model."""
