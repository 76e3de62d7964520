"""Lines of jobs and free room on members of pools: values and indexes, without side effects."""
