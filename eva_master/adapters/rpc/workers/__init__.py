"""What the master and its workers say to each other over gRPC."""
