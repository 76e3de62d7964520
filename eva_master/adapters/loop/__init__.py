"""Connects the control loop to the rest of a live master: inbox, gateway, clock."""
