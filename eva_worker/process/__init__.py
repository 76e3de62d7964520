"""The worker's own process: supervision, durable files, metrics and logs."""
