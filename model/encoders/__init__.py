"""Encoders φ of contexts: vectors, images, ensembles."""
