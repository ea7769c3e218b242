"""Learning: fold the log, train encoders in parallel, publish snapshots."""
