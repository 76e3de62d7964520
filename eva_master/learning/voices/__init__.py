"""Learned figures by voice: what the jobs of one owner, or of one tenant, have taught."""
