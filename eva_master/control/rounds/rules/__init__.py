"""The rules of a round: what plans may not take, and what they say of it."""
