"""Instances that have emptied: for which waiting task each stays, and until when."""
