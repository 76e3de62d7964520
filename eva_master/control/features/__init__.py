"""Features of the control loop, a room each: its memory, and how it follows the records."""
