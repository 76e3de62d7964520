"""Everything with a socket, a file, a thread or a coroutine, each behind a port."""
