"""The control loop: events in, state changed and written down, actions out."""
