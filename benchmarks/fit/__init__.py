"""`daband fit` on raw tables against loaders that were written for them: `python -m benchmarks.fit`."""
