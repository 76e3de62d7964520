"""Places with equal lines are few and short, and the check sees one more."""

from __future__ import annotations

from pathlib import Path

from tests.checks.figures import ALIKE_LINES, MOST_ALIKE, alike_faults


def write(root: Path, name: str, lines: int) -> None:
    folder = root / "eva_master"
    folder.mkdir(exist_ok=True)
    body = "".join(f"    value_{number} = {number}\n" for number in range(lines))
    (folder / f"{name}.py").write_text(f"def {name}():\n{body}")


def test_a_long_copy_is_a_fault(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(tmp_path, name, MOST_ALIKE + 1)
    (fault,) = alike_faults(tmp_path)
    assert "eva_master/first.py:2" in fault
    assert "eva_master/second.py:2" in fault


def test_more_pairs_than_allowed_are_a_fault(tmp_path: Path) -> None:
    for number in range(5):  # ten pairs
        write(tmp_path, f"copy_{number}", ALIKE_LINES)
    assert alike_faults(tmp_path) == []
    write(tmp_path, "copy_5", ALIKE_LINES)
    (fault,) = alike_faults(tmp_path)
    assert "15 pairs" in fault
