"""Jobs with deadlines, and jobs that wait for spot instances."""
