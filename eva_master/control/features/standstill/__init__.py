"""Machines that stand still, and tasks with them."""
