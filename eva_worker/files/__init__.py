"""The files of tasks: downloads, uploads, checkpoints and logs."""

CONTAINER_HOME = "/eva"
"""Where a container has the directories of its attempt."""
