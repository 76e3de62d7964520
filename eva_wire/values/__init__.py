"""Values that both ends know: ids, errors, bounds and states of jobs, roles of users."""
