"""``python -m eva_master.testing --policy NAME``: the suite over installed policies."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the suite; arguments are pytest's, and ``--policy``, which may be repeated."""
    if not all(map(find_spec, ("hypothesis", "pytest"))):
        sys.exit("error: pytest or Hypothesis is missing: pip install 'eva-scheduler[testing]'")
    import pytest

    suite = ["-p", "eva_master.testing.plugin", "--pyargs", "eva_master.testing"]
    return int(pytest.main([*suite, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
