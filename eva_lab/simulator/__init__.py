"""The simulator: the production control loop on a virtual clock, cloud and workers."""
