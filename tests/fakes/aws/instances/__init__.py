"""Instances beside EC2's own calls: their consoles, and the credentials of their roles."""
