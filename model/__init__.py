"""The algorithm: domain-adaptive neural contextual bandits, free of clocks, I/O and globals."""
