"""Files that know of a feature outside its rooms are listed by kinds."""

from __future__ import annotations

from pathlib import Path

from tests.checks.figures import mentions_table


def test_files_outside_the_rooms_of_a_feature_are_listed_by_kinds(tmp_path: Path) -> None:
    sources = {
        "eva_master/control/converge.py": "forks = 1\nmore_forks = 2\n",
        "eva_master/control/waiting.py": "queue = 1\n",
        "eva_master/control/features/forks/copies.py": "forks = 1\n",
        "eva_worker/orders.py": "class Fork: ...\n",
        "eva_worker/results/kept.py": "forks = 1\n",
    }
    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert mentions_table(tmp_path, "forks").splitlines() == [
        "  2 agent and SDK",
        "      1 eva_worker/orders.py",
        "      1 eva_worker/results/kept.py",
        "  1 control loop",
        "      2 eva_master/control/converge.py",
    ]
