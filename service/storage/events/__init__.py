"""The event log: appending in groups, reading in order, searching."""
