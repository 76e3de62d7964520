"""Commands and connections into running tasks: the relay between a user and an agent."""
