"""Parts of services, such as the master and the agent: logs, and metrics over HTTPS."""
