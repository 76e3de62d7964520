"""The files of tasks: downloads, uploads, checkpoints and logs."""
