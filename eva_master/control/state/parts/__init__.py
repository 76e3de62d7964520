"""What the state keeps of each partition: sums, and the memory of its policy."""
