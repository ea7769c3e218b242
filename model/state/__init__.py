"""State as bytes: snapshots, exported policies, messages to the training process."""
