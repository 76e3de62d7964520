"""One turn of the control loop: what features may see of it, and what they are told."""
