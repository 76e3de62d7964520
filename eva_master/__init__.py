"""The scheduler: decides which task runs on which instance, and has it done."""
