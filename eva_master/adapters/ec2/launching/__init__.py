"""How an instance is launched: the request, its image and its first boot."""
