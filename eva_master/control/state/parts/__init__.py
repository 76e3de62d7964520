"""Data of each partition in the state: sums, and the memory of its policy."""
