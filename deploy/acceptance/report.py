"""The report of a trial, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deploy.acceptance.assumptions import Verdict

DONE, FAILED, SKIPPED = "done", "failed", "skipped"


@dataclass(frozen=True)
class Outcome:
    """A step.

    Attributes:
        step: Its name.
        result: `DONE`, `FAILED` or `SKIPPED`.
        note: Facts, or the reason.
        seconds: How long it took.
    """

    step: str
    result: str
    note: str
    seconds: float


@dataclass
class Report:
    """A trial.

    Attributes:
        region: AWS region.
        cluster: Name of the cluster.
        budget: Dollars.
        endpoint: URL of a stand-in; empty for AWS.
        steps: Outcomes, in order.
        assumptions: Verdicts, in the order of the documentation.
        spent: Dollars, as worked out of EC2's descriptions.
        guessed: Types of which no price is known, so a high one was taken.
        remains: Leftovers of the cluster; `None` if nobody could look.
    """

    region: str
    cluster: str
    budget: float
    endpoint: str = ""
    steps: list[Outcome] = field(default_factory=list)
    assumptions: list[Verdict] = field(default_factory=list)
    spent: float = 0.0
    guessed: list[str] = field(default_factory=list)
    remains: list[str] | None = None

    @property
    def passed(self) -> bool:
        """Whether no step has failed, and nothing is left."""
        return self.remains == [] and all(step.result != FAILED for step in self.steps)

    def write(self, directory: Path) -> Path:
        """Write report.md and report.json; returns the former."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(
            json.dumps(self._document(), indent=2) + "\n", encoding="utf-8"
        )
        target = directory / "report.md"
        target.write_text(self._text(), encoding="utf-8")
        return target

    def _document(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "passed": self.passed,
            "version": version("eva-scheduler"),
            "at": _now(),
        }

    def _text(self) -> str:
        where = f"a stand-in at {self.endpoint}" if self.endpoint else f"AWS, {self.region}"
        remains = (
            "nobody could look" if self.remains is None else ", ".join(self.remains) or "nothing"
        )
        guesses = f" (prices of {', '.join(self.guessed)} guessed)" if self.guessed else ""
        lines = [
            f"# Eva {version('eva-scheduler')} on {where}: {'passed' if self.passed else 'failed'}",
            "",
            f"{_now()}, cluster {self.cluster}. Spent ${self.spent:.4f} of ${self.budget:g}"
            f"{guesses}. Left in the account: {remains}.",
            "",
            *("| step | result | s | |", "| --- | --- | --- | --- |"),
            *(
                f"| {step.step} | {step.result} | {step.seconds:.0f} | {_cell(step.note)} |"
                for step in self.steps
            ),
            "",
            *("| taken for granted | verdict | |", "| --- | --- | --- |"),
            *(
                f"| {_cell(each.assumption)} | {each.verdict} | {_cell(each.note)} |"
                for each in self.assumptions
            ),
        ]
        return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
