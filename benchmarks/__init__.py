"""Benchmarks: the demo, the cost of the model, the paper's tables."""
