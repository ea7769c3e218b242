"""Offline evaluation: candidates by name, logs of experiments and files, reports."""
