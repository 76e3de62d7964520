"""Views of the master's answers: tables, JSON and text."""
