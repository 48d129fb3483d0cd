"""`serpette predict`: label and probability per image."""

import csv as csv_module
import json as json_module
import sys
from typing import Annotated

import typer

from serpette.cli.options import Batch, Device, Dtype, ImageSize, Limit, Model, Precision
from serpette.cli.terminal import phases, say


def command(
    model: Model,
    images: Annotated[list[str], typer.Argument(help="Images, or folders to search.", show_default=False)],
    batch_size: Batch = 32,
    image_size: ImageSize = None,
    device: Device = "auto",
    dtype: Precision = Dtype.fp32,
    limit: Limit = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
) -> None:
    """Classify images with a model's own classifier."""
    import serpette

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other; choose one.")
    with phases() as phase:
        found = serpette.predict(
            model,
            images,
            limit=limit,
            batch_size=batch_size,
            image_size=image_size,
            device=device,
            dtype=dtype.value,
            progress=phase("predict"),
        )
    if json:
        say(json_module.dumps([p._asdict() for p in found], indent=1))
    elif csv:
        writer = csv_module.writer(sys.stdout)
        writer.writerow(("path", "label", "probability", "error"))
        writer.writerows(found)
    else:
        for p in found:
            say(f"{p.path}\t{p.label}\t{p.probability:.4f}" if p.error is None else f"{p.path}\terror: {p.error}")
