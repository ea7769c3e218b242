"""Connections, sessions and deadlines of SQLite and Postgres; migrations."""
