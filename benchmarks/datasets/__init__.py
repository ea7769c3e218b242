"""Data sets as two-domain transfer tasks: read from a folder, or from packs that need numpy alone."""
