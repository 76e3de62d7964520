"""Jobs whose tasks run independently of each other."""
