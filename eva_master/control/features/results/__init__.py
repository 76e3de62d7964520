"""Removal of what ended jobs have stored, on command or after a while."""
