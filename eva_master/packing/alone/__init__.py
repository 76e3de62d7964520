"""Whether a gang or a task fits a cluster in which nothing else runs, and where."""
