"""The drivers of SQLite and Postgres: engines, threads, errors, migrations."""
