"""What tasks are worth, what instances cost, and what moving and launching cost."""
