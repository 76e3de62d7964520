"""Makes the bundles that machines install: wheels of the project, and all that they need."""
