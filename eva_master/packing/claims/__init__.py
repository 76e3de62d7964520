"""Room that is kept for task runs which wait: who has a claim, and what is left for the others."""
