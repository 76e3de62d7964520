"""The gRPC services for workers."""
