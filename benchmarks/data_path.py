"""(c) Whether decoding keeps up with the model, and what it takes away from it where both share the processor."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from serpette.data.dataset import Dataset, open_dataset
from serpette.data.pixels import Pixels
from serpette.evaluation.collect import collect
from serpette.evaluation.trunk import features
from serpette.models.base import adapt

from .images import photos
from .models import dinov2_small
from .report import Cells, Ratio, Report, Row
from .timing import interleaved

BATCH = 16
KEPT = 0.95


def run() -> Report:
    with TemporaryDirectory() as folder:
        jpeg, png = (photos(Path(folder), count=64, suffix=suffix) for suffix in (".jpg", ".png"))
        rows = [
            data_row(jpeg, 98, images=48, rounds=5),
            data_row(png, 98, images=48, rounds=5),
            data_row(jpeg, 224, images=32, rounds=3),
            *(data_row(dataset, 98, images=48, rounds=5) for dataset in assets("fashion-mnist")),
        ]
    return Report(
        title=f"DINOv2-small, fp32, batch {BATCH}: images per second of decoding, of the model, and of both together",
        target=f"decoding faster than the model, and both together at least {KEPT} of what is possible",
        limit="on a CPU, decoding runs on the processor that also runs the model, so that at best both take the sum of "
        "their times (`possible`, as a part of the model's speed); files come from the page cache.",
        rows=rows,
    )


def data_row(dataset: Dataset, side: int, images: int, rounds: int) -> Row:
    adapter = adapt(dinov2_small(side))

    def cold() -> Pixels:
        return Pixels(dataset, "train", adapter.preprocessing, limit=images)

    decoded = cold()
    data, model, both = interleaved(
        [
            lambda: [len(labels) for _, labels in cold().batches(BATCH)],
            lambda: collect(adapter, decoded, features, BATCH),
            lambda: collect(adapter, cold(), features, BATCH),
        ],
        rounds,
    )
    possible = median(model) / (median(model) + median(data))
    kept = Ratio.of(model, both)
    miss = ""
    if median(data) > median(model):
        miss = f"decoding {dataset.name} is slower than the model at {side} px."
    elif kept.value < KEPT * possible:
        miss = f"{dataset.name} at {side} px runs at {kept.value:.3f} of the model's speed; {possible:.3f} is possible."
    cells: Cells = {
        "images": dataset.name,
        "px": side,
        "data": images / median(data),
        "model": images / median(model),
        "both": images / median(both),
        "both / model": kept,
        "possible": possible,
    }
    return Row(cells, miss)


def assets(*names: str) -> Iterator[Dataset]:
    """The datasets that lie beside the repository, where they do."""
    named = os.environ.get("SERPETTE_ASSETS")
    root = Path(named) if named else Path(__file__).parents[2] / "shared" / "assets"
    return (open_dataset(root / "datasets" / name) for name in names if (root / "datasets" / name).is_dir())
