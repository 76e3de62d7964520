"""Shows the demo while it runs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from eva_client.cli.views import live
from eva_master.app.demo.story import Picture
from eva_wire.rpc.messages import ClusterState

_INDENT = " " * 6
"""Of what a command answers."""


class Screen:
    """Prints a line for each event and, on a terminal, redraws the cluster below them.

    Args:
        console: The console to write to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def say(self, line: str) -> None:
        """Print a line about what happens."""
        at = int(self.elapsed_s)
        self._console.print(Text.assemble((f"{at // 60}:{at % 60:02}  ", "dim"), line))

    def answer(self, command: str, answer: RenderableType) -> None:
        """Show a command and its output, as if the user had typed it."""
        self.say(f"$ {command}")
        options = self._console.options.update_width(self._console.width - len(_INDENT))
        for segments in self._console.render_lines(answer, options, pad=False):
            line = Text.assemble(
                _INDENT, *((segment.text, segment.style or "") for segment in segments)
            )
            line.rstrip()
            self._console.print(line)

    def show(self, picture: Picture) -> None:
        """Draw the cluster's instances and tasks."""
        if self._live.is_started:
            present = [instance for instance in picture.state.instances if instance.state != "gone"]
            state = ClusterState()
            state.CopyFrom(picture.state)
            del state.instances[:]
            state.instances.extend(present)
            drawn = live.render(state, picture.jobs, picture.bill)
            self._live.update(drawn, refresh=True)
