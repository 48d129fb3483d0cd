"""`serpette plan`: from a profile to the sites to remove."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from serpette.cli.options import AsJson, Seed, split_indices
from serpette.cli.terminal import say


class Method(StrEnum):
    """Ways to rank sites."""

    block = "block"
    attention = "attention"
    mlp = "mlp"
    joint = "joint"
    contiguous = "contiguous"
    random = "random"
    deepest = "deepest"


class Unit(StrEnum):
    """What `random` and `deepest` remove."""

    block = "block"
    attention = "attention"
    mlp = "mlp"
    joint = "joint"


def command(
    profile: Annotated[Path, typer.Argument(help="JSON file written by `serpette measure`.", show_default=False)],
    method: Annotated[Method, typer.Option("--method", help="How sites are ranked.", show_default=False)],
    drop: Annotated[int, typer.Option("--drop", "-n", help="Blocks, or sublayers, to remove.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON file.")] = Path("plan.json"),
    unit: Annotated[Unit, typer.Option("--unit", help="What random and deepest remove.")] = Unit.block,
    protect: Annotated[str | None, typer.Option("--protect", help="Blocks that must stay, such as 0,11.")] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Choose which sites to remove."""
    import serpette

    result = serpette.plan(
        profile,
        method=method.value,
        drop=drop,
        seed=seed,
        unit=unit.value,
        protect=split_indices(protect, "--protect"),
    )
    result.save(out)
    say(result.to_json() if json else f"remove {', '.join(map(str, result.sites))}\nplan: {out}")
