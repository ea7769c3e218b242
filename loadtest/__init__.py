"""Open-loop load tests of the running service: `python -m loadtest PROFILE` (docs/load.md)."""
