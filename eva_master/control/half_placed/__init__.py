"""Gangs of which the cloud refuses some instances, and how they give up the others."""
