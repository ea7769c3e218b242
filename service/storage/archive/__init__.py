"""Archived rounds: files of decisions and rewards, their manifest, and what moves rounds there."""
