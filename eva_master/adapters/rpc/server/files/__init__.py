"""The Files service: what tasks have stored, for users."""
