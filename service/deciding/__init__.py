"""Decisions: current policies, batches of requests, scoring, and the events written for them."""
