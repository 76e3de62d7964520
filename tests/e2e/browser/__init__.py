"""Pages in a real browser, over a running cluster."""
