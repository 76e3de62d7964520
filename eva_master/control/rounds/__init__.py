"""Rounds: when a policy is asked, what of its plan is afforded, and how that is adopted."""
