"""Parts of what users are shown of jobs."""
