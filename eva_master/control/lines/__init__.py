"""Lines of jobs before pools of instances."""
