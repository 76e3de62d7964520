"""Extra runs beside the policies: for late tasks, and forks in room that no other job needs."""
