"""Backups: one verified file."""
