"""Settings from files, variables and flags, for the master and the command."""
