"""Lets the Eva scheduler see how fast a training loop runs, and stop it at a checkpoint."""
