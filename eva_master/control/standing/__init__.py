"""Who stands in which line, and what is free on members of pools: values and indexes alone."""
