"""Toolkit of policies that weigh whole configurations against the present one."""
