"""Pure functions from the messages of services to the values of templates, a module per page."""
