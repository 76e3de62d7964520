"""Images of containers: fetched from registries with credentials, or built from contexts."""
