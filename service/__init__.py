"""The decision service: HTTP, storage, background work, command line."""
