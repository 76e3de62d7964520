"""Sources of the examples of property tests."""

from __future__ import annotations

from hypothesis.internal.conjecture import providers


def by_declaration_alone() -> None:
    """Have hypothesis draw examples that do not depend on which modules were imported before.

    Hypothesis mixes in constants that it finds in the modules of the project. So the examples of a
    test would depend on every other file, and on which tests ran in the same process before.

    Raises:
        AttributeError: This release of hypothesis looks for constants in another way.
    """
    name = "is_local_module_file"
    if not hasattr(providers, name):
        raise AttributeError(f"hypothesis has no {providers.__name__}.{name} any more")
    setattr(providers, name, _never_local)


def _never_local(path: str) -> bool:
    del path
    return False
