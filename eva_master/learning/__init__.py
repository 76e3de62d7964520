"""What the cluster learns, as pure values: co-location, standalone throughput, event rates."""
