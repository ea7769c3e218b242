"""HTTP: the protocol, the server, the fast path, middleware."""
