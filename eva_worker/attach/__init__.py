"""Commands and connections into running tasks, each with a call to the master of its own."""
