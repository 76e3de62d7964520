"""Results of a simulation: metrics, tables, and the lower bound."""
