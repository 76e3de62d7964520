"""What is known of how long tasks run: by the past, by finished tasks, and by both together."""
