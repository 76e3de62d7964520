"""Toolkit of policies that fill instances one by one: open instances, groups, plans."""
