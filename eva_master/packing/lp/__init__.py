"""The configuration LP: column generation, rounding, and a lower bound."""
