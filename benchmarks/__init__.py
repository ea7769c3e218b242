"""Benchmarks: the demo, the cost of the model, the paper's tables."""

import service  # noqa: F401 - before numpy loads: it has numerics use one thread, as when serving
