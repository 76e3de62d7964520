"""Extra runs of an array's late tasks."""
