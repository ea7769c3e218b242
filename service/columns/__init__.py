"""Contexts that are rows of a table: declared columns, frozen at creation, encoded as float32 slots."""
