"""What a simulation comes to: figures, rows, and the lower bound."""
