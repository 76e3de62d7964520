"""The tests. They fork while they use gRPC, whose handlers of forks sometimes break the child.

So this process, before anything imports gRPC, keeps it from having such handlers. gRPC reads the
variable once. It is gone afterwards, for programs that tests start may need them.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import grpc

grpc.insecure_channel("unix:/nowhere").close()
del os.environ["GRPC_ENABLE_FORK_SUPPORT"]
