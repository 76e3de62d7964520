"""A simulated cloud, simulated workers and their clock."""
