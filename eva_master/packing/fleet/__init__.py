"""What policies are built of that share a fixed fleet of several GPU types between many jobs."""
