"""Messages between processes about new snapshots and rewards: Redis, or nothing."""
