"""``python -m eva_worker`` is ``eva worker``."""

from eva_worker.cli import worker

worker(prog_name="eva worker")
