"""Work on logs in pieces that an engine runs."""
