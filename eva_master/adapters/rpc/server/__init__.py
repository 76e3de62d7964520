"""What the master answers to users over gRPC."""
