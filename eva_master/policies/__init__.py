"""The schedulers, a package each; none knows of another.

A package exports ``POLICY`` (a `ports.PolicyKind`): the name by which the master's configuration
chooses it, the frozen dataclass of its own settings, and how to build it. Adding a scheduler
means adding a package here; the conformance suite runs over it from then on.
"""
