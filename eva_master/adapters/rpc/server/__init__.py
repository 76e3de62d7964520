"""Answers users' calls over gRPC."""
