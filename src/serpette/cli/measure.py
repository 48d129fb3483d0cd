"""`serpette measure`: how redundant each site of a model is on some images."""

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
    RandomWeights,
    Seed,
    Unknown,
)
from serpette.cli.terminal import check_out, phases, say, show


class Tokens(StrEnum):
    """Which tokens of the residual stream are compared."""

    all = "all"
    cls = "cls"
    patch = "patch"
    pooled = "pooled"


def command(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON file; the heatmap goes beside it.")] = Path(
        "profile.json"
    ),
    images: Annotated[int, typer.Option("--images", min=1, help="Training images to measure on.")] = 512,
    tokens: Annotated[Tokens, typer.Option("--tokens", help="Tokens to compare.")] = Tokens.all,
    batch_size: Batch = 32,
    image_size: ImageSize = None,
    random_weights: RandomWeights = False,
    device: Device = "auto",
    dtype: Precision = Dtype.fp32,
    on_bad: Bad = OnBad.skip,
    on_unknown: Unknown = OnUnknown.fail,
    class_level: ClassLevel = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Measure how little each block, attention and MLP changes the residual stream."""
    import serpette
    from serpette.data.dataset import open_dataset
    from serpette.export.load import as_module
    from serpette.report.charts import write_heatmap
    from serpette.report.tables import profile_table

    if out.suffix == ".svg":
        raise typer.BadParameter("--out names the JSON file; the heatmap goes beside it as .svg.")
    check_out(out)
    module = as_module(model, image_size=image_size, device=device, dtype=dtype.value, random_weights=random_weights)
    dataset = open_dataset(data, seed=seed, class_level=class_level, on_unknown=on_unknown.value)
    with phases() as phase:
        profile = serpette.measure(
            module,
            dataset,
            images=min(images, limit or images),
            tokens=tokens.value,
            batch_size=batch_size,
            seed=seed,
            on_bad=on_bad.value,
            progress=phase("measure"),
        )
    profile.save(out)
    heatmap = write_heatmap(profile, out.with_suffix(".svg"))
    if json:
        say(profile.to_json())
    else:
        show(profile_table(profile))
        say(f"profile: {out}\nheatmap: {heatmap}")
