"""Options that several commands share, written once. Nothing here imports torch."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OnBad(StrEnum):
    """What to do with an image that cannot be decoded."""

    skip = "skip"
    fail = "fail"


class Dtype(StrEnum):
    """Precisions."""

    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class OnUnknown(StrEnum):
    """What to do with a class of val or test that train lacks."""

    fail = "fail"
    drop = "drop"


MODEL_HELP = "demo, timm:NAME, hf:REPO_OR_DIR, or a folder saved by timm, transformers or serpette."

Model = Annotated[str, typer.Argument(help=MODEL_HELP, show_default=False)]
Data = Annotated[
    str,
    typer.Option(
        "--data", help="demo, an image folder, a CSV or Parquet manifest, or an HDF5 file.", show_default=False
    ),
]
ClassLevel = Annotated[
    int | None,
    typer.Option("--class-level", min=1, max=2, help="Folder level that names the class.", show_default=False),
]
Unknown = Annotated[OnUnknown, typer.Option("--on-unknown", help="A class of val or test that train lacks.")]
Bad = Annotated[OnBad, typer.Option("--on-bad", help="Images that cannot be decoded: leave out and list, or stop.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of splits, subsets and everything random.")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many images of each split.", show_default=False)
]
Batch = Annotated[int, typer.Option("--batch-size", "-b", min=1, help="Images at a time; halved if memory runs out.")]
ImageSize = Annotated[
    int | None,
    typer.Option(
        "--image-size", min=1, help="Side of the input in pixels, if not the model's own.", show_default=False
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[Dtype, typer.Option("--dtype", help="Precision of the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON record to standard output, and nothing else.")]
RandomWeights = Annotated[
    bool, typer.Option("--random-weights", help="Build the architecture alone, without its weights.")
]


def out_file(default_help: str) -> type[Path | None]:
    """An `-o FILE` option."""
    return Annotated[  # type: ignore[return-value]
        Path | None, typer.Option("--out", "-o", help=default_help, show_default=False, dir_okay=False)
    ]


def split_indices(text: str | None, option: str) -> tuple[int, ...]:
    """Block numbers from a comma-separated list such as "3,9".

    Raises:
        typer.BadParameter: the text is something else.
    """
    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} takes whole numbers such as 3,9; found {text!r}.") from None
