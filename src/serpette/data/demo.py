"""The small dataset that comes with the package, so that every command can be tried at once."""

from importlib.resources import as_file, files

import numpy as np

from serpette.data.listing import Entry, Listing
from serpette.data.sources import ArraySource, make_id
from serpette.data.splits import SPLITS


def read_demo() -> Listing:
    """List the demo images: 28 x 28 grey, ten classes, all three splits."""
    with as_file(files("serpette") / "demo" / "demo.npz") as path, np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    names = [str(name) for name in arrays["classes"]]
    return Listing(
        name="demo",
        layout="arrays in the package",
        source=ArraySource({f"{split}_images": arrays[f"{split}_images"] for split in SPLITS}),
        splits={
            split: [
                Entry(make_id(f"{split}_images", i), names[label]) for i, label in enumerate(arrays[f"{split}_labels"])
            ]
            for split in SPLITS
        },
    )
