"""The gRPC interface of users and workers to the master."""
