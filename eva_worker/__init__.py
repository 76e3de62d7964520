"""The agent that runs tasks on an instance."""
