"""Processes that tests start: the service, its stores, what watches it."""
