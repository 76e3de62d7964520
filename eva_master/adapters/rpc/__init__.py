"""The wire: what users and workers say to the master, over gRPC."""
