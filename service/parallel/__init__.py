"""Engines that run independent pieces of heavy work: this machine's processes, or a Ray cluster."""
