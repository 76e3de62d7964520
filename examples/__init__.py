"""Programs to run on Eva, each in a folder with its job file."""
