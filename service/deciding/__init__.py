"""Decisions: current policies, batches of requests, scoring, and what is written for each."""
