"""`serpette prune`: remove the sites of a plan and save the model."""

from pathlib import Path
from typing import Annotated

import typer

from serpette.cli.options import AsJson, Device, Dtype, ImageSize, Model, Precision, RandomWeights, split_indices
from serpette.cli.terminal import say


def command(
    model: Model,
    plan: Annotated[
        Path | None, typer.Argument(help="JSON file written by `serpette plan`.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pruned model.", show_default=False)] = ...,  # type: ignore[assignment]
    drop_block: Annotated[str | None, typer.Option("--drop-block", help="Blocks, such as 3,9.")] = None,
    drop_attention: Annotated[str | None, typer.Option("--drop-attention", help="Blocks that lose attention.")] = None,
    drop_mlp: Annotated[str | None, typer.Option("--drop-mlp", help="Blocks that lose their MLP.")] = None,
    image_size: ImageSize = None,
    random_weights: RandomWeights = False,
    device: Device = "cpu",
    dtype: Precision = Dtype.fp32,
    json: AsJson = False,
) -> None:
    """Remove sites and save the model, in its library's own format where that can say it all."""
    import serpette
    from serpette.export.load import load
    from serpette.records import MANIFEST, Plan, Pruning

    options = (drop_block, drop_attention, drop_mlp)
    if (plan is None) == (not any(options)):
        raise typer.BadParameter("name the sites once: a plan file, or --drop-block, --drop-attention, --drop-mlp.")
    chosen = Plan.load(plan) if plan else _plan(*options)
    module = load(model, image_size=image_size, device=device, dtype=dtype.value, random_weights=random_weights)
    folder = serpette.save(serpette.prune(module, chosen), out)
    manifest = Pruning.load(folder / MANIFEST)
    if json:
        say(manifest.to_json())
    else:
        say(
            f"removed {', '.join(map(str, chosen.sites))}\n"
            f"{manifest.form} format, read back with equal outputs: {folder}"
        )


def _plan(blocks: str | None, attention: str | None, mlp: str | None) -> "Plan":  # type: ignore[name-defined]  # noqa: F821
    from pydantic import ValidationError

    from serpette.errors import PlanError
    from serpette.records import Plan
    from serpette.records.base import first_problem

    dropped = {
        "drop_blocks": split_indices(blocks, "--drop-block"),
        "drop_attention": split_indices(attention, "--drop-attention"),
        "drop_mlp": split_indices(mlp, "--drop-mlp"),
    }
    try:
        return Plan(**dropped, drop=sum(map(len, dropped.values())))
    except ValidationError as error:
        raise PlanError(f"the sites to remove are not valid: {first_problem(error)}.") from error
