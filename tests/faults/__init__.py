"""A campaign of kills and pauses over everything that a cluster consists of; see `__main__`."""
