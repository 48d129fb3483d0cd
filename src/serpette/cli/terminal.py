"""What all commands print with: results to standard output, progress and errors to standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serpette.progress import Phase, Progress


def show(renderable: Any) -> None:
    """Print a rich renderable to standard output."""
    from rich.console import Console

    Console().print(renderable)


def say(line: str) -> None:
    """Print one plain line to standard output; nothing in it is taken for markup."""
    print(line)


def check_out(path: Path | None) -> None:
    """Make sure, before the work, that its result can be written to `path`."""
    from serpette.files import check_writable

    if path is not None:
        check_writable(path.parent)


def fail(message: str) -> None:
    """Print one error line to standard error."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def phases() -> Iterator[Phase]:
    """Progress bars with the time that is left, one per phase of the work, on standard error if that is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    off = not console.is_terminal  # or a blank line would precede the error in a log
    with Bars(*columns, TimeRemainingColumn(), console=console, transient=True, disable=off) as bars:

        def phase(name: str) -> Progress:
            task = bars.add_task(escape(name), total=None)

            def update(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total)

            return update

        yield phase
