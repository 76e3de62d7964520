"""The catalog of a running master: the cloud is asked anew what it sells."""
