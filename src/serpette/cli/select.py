"""`serpette select`: the main job."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from serpette.cli.options import (
    AsJson,
    Bad,
    Batch,
    ClassLevel,
    Data,
    Device,
    Dtype,
    ImageSize,
    Limit,
    Model,
    OnBad,
    OnUnknown,
    Precision,
    Seed,
    Unknown,
    split_indices,
)
from serpette.cli.terminal import phases, say, show


class Rule(StrEnum):
    """How the winner is chosen."""

    cheapest = "cheapest"
    best = "best"


class Head(StrEnum):
    """Which classifier answers."""

    own = "own"
    refit = "refit"


def command(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.", show_default=False)],
    methods: Annotated[
        str, typer.Option("--methods", help="block, attention, mlp, joint, contiguous, random, deepest.")
    ] = "block,attention,mlp,joint",
    drops: Annotated[
        str | None, typer.Option("--drops", help="Drop counts, such as 1,2,4; by default up to half the depth.")
    ] = None,
    rule: Annotated[
        Rule, typer.Option("--rule", help="cheapest within --max-loss, or best accuracy (the paper's rule).")
    ] = Rule.cheapest,
    max_loss: Annotated[
        float, typer.Option("--max-loss", min=0, help="Points of validation accuracy that cheapest may lose.")
    ] = 1.0,
    head: Annotated[
        Head | None,
        typer.Option("--head", help="By default own where the model knows the classes of the data, else refit."),
    ] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="Training images to measure redundancy on.")] = 512,
    images_search: Annotated[
        int, typer.Option("--images-search", min=1, help="Training and validation images of the search, each.")
    ] = 500,
    batch_size: Batch = 32,
    repeats: Annotated[int, typer.Option("--repeats", min=2, help="Rounds of the benchmark.")] = 10,
    image_size: ImageSize = None,
    device: Device = "auto",
    dtype: Precision = Dtype.fp32,
    on_bad: Bad = OnBad.skip,
    on_unknown: Unknown = OnUnknown.fail,
    class_level: ClassLevel = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Find the best pruned model for a dataset, save it and report."""
    import serpette
    from serpette.data.dataset import open_dataset
    from serpette.records import METHODS
    from serpette.report.tables import candidates_table, cost_table
    from serpette.report.verdict import verdict

    chosen = tuple(name.strip() for name in methods.split(","))
    unknown = [name for name in chosen if name not in METHODS]
    if unknown:
        raise typer.BadParameter(f"unknown method {unknown[0]!r}; expected some of {', '.join(METHODS)}.")
    counts = split_indices(drops, "--drops")
    if any(count < 1 for count in counts):
        raise typer.BadParameter(f"--drops takes counts of at least 1; found {min(counts)}.")
    dataset = open_dataset(data, seed=seed, class_level=class_level, on_unknown=on_unknown.value)
    with phases() as phase:
        selection = serpette.select(
            model,
            dataset,
            out,
            methods=chosen,  # type: ignore[arg-type]
            drops=counts or None,
            rule=rule.value,
            max_loss=max_loss,
            head=head.value if head else None,
            images=min(images, limit or images),
            images_search=min(images_search, limit or images_search),
            limit=limit,
            batch_size=batch_size,
            repeats=repeats,
            image_size=image_size,
            device=device,
            dtype=dtype.value,
            seed=seed,
            on_bad=on_bad.value,
            phase=phase,
        )
    if json:
        say(selection.to_json())
        return
    show(candidates_table(selection))
    show(cost_table(selection.winner_cost.model_copy(update={"baseline": selection.baseline_cost})))
    say(verdict(selection))
    say(f"report: {out / 'report.html'}\nmodel:  {out / 'model'}  ({selection.load_with})")
