"""What a simulation is about: a trace, or the past of a live cluster."""
