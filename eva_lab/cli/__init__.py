"""Commands of the lab: ``eva simulate``, ``eva trace`` and ``eva experiment``."""
