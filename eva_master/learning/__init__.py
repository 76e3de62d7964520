"""What the cluster learns, as pure values: co-location, standalone rates, delays, event rates."""
