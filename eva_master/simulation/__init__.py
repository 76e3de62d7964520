"""A virtual clock, a simulated cloud and simulated workers around the very same control loop."""
