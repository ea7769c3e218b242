"""Encoding and decoding: request bodies, answers, contexts, stored decisions."""
