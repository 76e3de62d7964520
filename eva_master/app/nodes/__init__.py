"""The settings of owned nodes, for masters and for simulations."""
