"""Run times of tasks, predicted from the past, from finished tasks, and from both together."""
