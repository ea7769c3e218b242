"""Learning: fold the log, train encoders beside the fold, publish snapshots."""
