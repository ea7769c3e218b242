"""Training of an encoder: networks, losses, the episode, the rebuild of A and b."""
