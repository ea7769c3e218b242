"""Bytes to values and back: request bodies, answers, contexts, stored decisions."""
