"""`serpette eval`: accuracy of a model on one split."""

from enum import StrEnum
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
    out_file,
)
from serpette.cli.terminal import check_out, phases, say, show


class Head(StrEnum):
    """Which classifier answers."""

    own = "own"
    frozen = "frozen"
    refit = "refit"


class Fit(StrEnum):
    """How a head is fitted."""

    logistic = "logistic"
    ridge = "ridge"
    adamw = "adamw"


def command(
    model: Model,
    data: Data,
    split: Annotated[str, typer.Option("--split", help="train, val or test.")] = "test",
    head: Annotated[
        Head | None,
        typer.Option("--head", help="By default own where the model knows the classes of the data, else refit."),
    ] = None,
    fit: Annotated[Fit, typer.Option("--fit", help="How frozen and refit heads are fitted.")] = Fit.logistic,
    base: Annotated[
        str | None, typer.Option("--base", help="Dense model for --head frozen, if not the one that MODEL names.")
    ] = None,
    out: out_file("Write the JSON record here.") = None,  # type: ignore[valid-type]
    batch_size: Batch = 32,
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
    """Score a model with its own, a frozen or a refitted classifier."""
    import serpette
    from serpette.data.dataset import open_dataset
    from serpette.report.tables import scores_table

    dataset = open_dataset(data, seed=seed, class_level=class_level, on_unknown=on_unknown.value)
    check_out(out)
    with phases() as phase:
        scores = serpette.evaluate(
            model,
            dataset,
            split=split,
            head=head.value if head else None,
            fit_with=fit.value,
            base=base,
            limit=limit,
            batch_size=batch_size,
            image_size=image_size,
            device=device,
            dtype=dtype.value,
            seed=seed,
            on_bad=on_bad.value,
            phase=phase,
        )
    if out:
        scores.save(out)
    if json:
        say(scores.to_json())
    else:
        show(scores_table(scores))
