"""Durable storage: the event log, experiments, snapshots and leases, on SQLite or Postgres."""
