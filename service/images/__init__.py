"""Contexts that are images: PNG and JPEG files, decoded within bounds to float32 numbers."""
