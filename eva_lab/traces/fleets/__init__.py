"""Traces of fixed fleets: jobs with a rate on each GPU type, and worlds of tenants."""
