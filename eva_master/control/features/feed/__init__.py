"""The feed of events: an observer of the records, which writes what happened for users."""
