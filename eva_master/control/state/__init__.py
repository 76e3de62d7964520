"""The records of the control loop, and the views that are kept of them."""
