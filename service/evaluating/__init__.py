"""Offline evaluation as people ask for it: candidates by name, logs from anywhere, reports."""
