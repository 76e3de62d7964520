"""Tasks that say and do what nobody expects, against the agent's own code."""
