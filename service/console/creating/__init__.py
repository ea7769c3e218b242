"""What the forms say that create experiments and import their past rounds."""
