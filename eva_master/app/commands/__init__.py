"""Commands of operators: ``eva up``, ``eva master``, ``eva catalog``, ``eva deploy`` and others."""
