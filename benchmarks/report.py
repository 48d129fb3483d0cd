"""One table per benchmark: what was measured, against which target, and what limits it."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.table import Table

from serpette.benchmark.throughput import median_interval
from serpette.models.runtime import device_name
from serpette.report.formats import DASH


@dataclass(frozen=True)
class Ratio:
    """The median over the rounds of a ratio, with its 95 % interval (the whole range for fewer than six rounds)."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, above: list[float], below: list[float], scale: float = 1.0) -> "Ratio":
        """`above / below * scale`, round by round."""
        ratios = [scale * a / b for a, b in zip(above, below, strict=True)]
        return cls(median(ratios), *median_interval(ratios))

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


Cell = str | int | float | Ratio
Cells = dict[str, Cell]


class Row(NamedTuple):
    """One line of a table; `miss` says in plain words how the target is missed: "" if met, `None` if there is none."""

    cells: Cells
    miss: str | None


class Report(NamedTuple):
    """What a benchmark found; `limit` is one sentence on what keeps the numbers from being better."""

    title: str
    target: str
    limit: str
    rows: list[Row]

    @property
    def misses(self) -> list[str]:
        """The rows that miss the target, in plain words."""
        return [row.miss for row in self.rows if row.miss]

    def table(self) -> Table:
        """The table for a terminal."""
        header = f"{self.title}\n{', '.join(machine().values())}\ntarget: {self.target}"
        table = Table(title=header, caption=f"Limit: {self.limit}", title_style="bold")
        for name, cell in self.rows[0].cells.items():
            table.add_column(name, justify="left" if isinstance(cell, str) else "right")
        table.add_column("target")
        for row in self.rows:
            verdict = DASH if row.miss is None else "[red]missed[/]" if row.miss else "[green]met[/]"
            table.add_row(*map(shown, row.cells.values()), verdict)
        return table

    def to_dict(self) -> dict[str, Any]:
        """The same for a file."""
        rows = [
            {name: asdict(cell) if isinstance(cell, Ratio) else cell for name, cell in row.cells.items()}
            | {"miss": row.miss}
            for row in self.rows
        ]
        return {"title": self.title, "target": self.target, "limit": self.limit, "rows": rows}


def machine() -> dict[str, str]:
    """What the numbers hold for: the processor with its threads, and torch."""
    return {"device": device_name(torch.device("cpu")), "torch": f"torch {torch.__version__}"}


def shown(cell: Cell) -> str:
    """A cell as text: three decimals below 10, two below 1,000, none above."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    return f"{cell:,.{3 if abs(cell) < 10 else 2 if abs(cell) < 1000 else 0}f}"
