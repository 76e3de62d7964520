"""What the policies share that weigh whole configurations against the present one."""
