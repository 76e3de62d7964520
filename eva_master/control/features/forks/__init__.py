"""Jobs whose task runs as several forks."""
