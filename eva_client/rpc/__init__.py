"""The client's end of the users' port."""
