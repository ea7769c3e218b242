"""What stands between and beside several machines: poolers, balancers, standbys."""
