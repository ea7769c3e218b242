"""The rows of text files: CSV and JSON lines."""
