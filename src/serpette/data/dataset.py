"""A labelled set of images with its splits, whatever layout it is stored in.

folder, table, HDF5, demo ──► Listing ──► splits completed ──► classes aligned by name ──► Dataset
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serpette.data.demo import read_demo
from serpette.data.folders import read_folder
from serpette.data.hdf5 import read_hdf5
from serpette.data.listing import UNSPLIT, Entry, Listing
from serpette.data.manifest import read_manifest, write_manifest
from serpette.data.opening import Raw
from serpette.data.sources import Source
from serpette.data.splits import SPLITS, canonical, cut
from serpette.errors import DataError

CLASS_ORDER = "by Unicode code point of the class name"
_HELD_OUT = 0.15  # of all images, for val and for test each


@dataclass(frozen=True, slots=True)
class Item:
    """One image: `path` is its unique id (relative to the dataset, or `images[17]`), `label` the index of its class."""

    path: str
    label: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images, labels and splits; `notes` says everything that was decided while reading them."""

    name: str
    layout: str
    class_order: str
    classes: tuple[str, ...]
    splits: dict[str, tuple[Item, ...]]
    notes: tuple[str, ...]
    seed: int
    source: Source

    def split(self, name: str) -> tuple[Item, ...]:
        """The images of one split, by its canonical name or an alias such as "validation".

        Raises:
            DataError: there is no such split.
        """
        try:
            return self.splits[canonical(name) or name]
        except KeyError:
            available = ", ".join(self.splits)
            raise DataError(f"{self.name} has no split {name!r}; expected one of {available}.") from None

    def read(self, item: Item) -> Raw:
        """The stored content of one image, encoded bytes or an array (H, W[, C]); safe from any thread.

        Raises:
            BadImage: it cannot be read.
        """
        return self.source.read(item.path)

    def write_manifest(self, path: str | os.PathLike[str]) -> Path:
        """Write `path,label,split` as CSV, which can be opened as a dataset again if the images are files.

        Raises:
            SerpetteError: `path` cannot be written.
        """
        rows = (
            (self.source.locate(item.path), self.classes[item.label], split)
            for split, items in self.splits.items()
            for item in items
        )
        return write_manifest(Path(path), rows)


def open_dataset(
    data: str | os.PathLike[str] | Dataset,
    *,
    seed: int = 0,
    class_level: int | None = None,
    on_unknown: Literal["fail", "drop"] = "fail",
) -> Dataset:
    """Open a dataset and complete its splits.

    Args:
        data: "demo"; a folder with train, val and test folders, or with class folders only; a `.csv` or `.parquet`
            table with path, label and maybe split; an HDF5 file with images and labels; or an open dataset, returned
            as it is.
        seed: draws the splits that are missing.
        class_level: which folder names the class where there are several levels, counted from 1.
        on_unknown: what to do with images of val and test whose class train lacks.

    Raises:
        DataError: nothing usable at `data`; the line says what was expected.
    """
    if isinstance(data, Dataset):
        return data
    if class_level is not None and class_level < 1:
        raise DataError(f"class level {class_level} does not exist; expected 1 for the first folder level, or 2, ...")
    listing = _read(data, class_level)
    known = {entry.label for entry in listing.splits.get("train", listing.splits.get(UNSPLIT, []))} | listing.classes
    splits, notes = _complete(listing, seed)
    if not splits["train"]:
        raise DataError(f"{listing.name} has no training images; expected some in every class of train.")
    splits, dropped = _without_unknown(listing.name, splits, known, on_unknown)
    classes = tuple(sorted(known))
    index = {name: i for i, name in enumerate(classes)}
    return Dataset(
        name=listing.name,
        layout=listing.layout,
        class_order=CLASS_ORDER,
        classes=classes,
        splits={split: tuple(Item(entry.path, index[entry.label]) for entry in splits[split]) for split in SPLITS},
        notes=(*listing.notes, *notes, *dropped),
        seed=seed,
        source=listing.source,
    )


def _read(data: str | os.PathLike[str], class_level: int | None) -> Listing:
    path = Path(data)
    if data == "demo":
        return read_demo()
    if path.is_dir():
        return read_folder(path, class_level)
    if not path.exists():
        raise DataError(f"{path} does not exist; expected a folder, a .csv, .parquet or .h5 file, or 'demo'.")
    match path.suffix.lower():
        case ".csv" | ".parquet":
            return read_manifest(path)
        case ".h5" | ".hdf5":
            return read_hdf5(path)
    raise DataError(f"{path} is not a dataset; expected a folder (unpack archives), a .csv, .parquet or .h5 file.")


def _complete(listing: Listing, seed: int) -> tuple[dict[str, list[Entry]], list[str]]:
    """Cut the splits that are missing from the training images."""
    missing = [split for split in ("val", "test") if split not in listing.splits]
    if not missing:
        return listing.splits, []
    rest = listing.splits.get("train", listing.splits.get(UNSPLIT, []))
    shares = {"train": 1 - _HELD_OUT * len(missing), **dict.fromkeys(missing, _HELD_OUT)}
    splits = {**listing.splits, **cut(rest, shares, seed)}
    percents = ":".join(f"{100 * share:.0f}" for share in shares.values())
    what = "all images" if UNSPLIT in listing.splits else "train"
    notes = [f"{what} cut into {'/'.join(shares)} {percents}, stratified, seed {seed}"]
    small = sum(count < len(shares) for count in Counter(entry.label for entry in rest).values())
    if small:
        held_out = " and ".join(missing)
        notes.append(f"classes with fewer than {len(shares)} images, and so none in {held_out}: {small}")
    return splits, notes


def _without_unknown(
    name: str, splits: dict[str, list[Entry]], known: set[str], on_unknown: Literal["fail", "drop"]
) -> tuple[dict[str, list[Entry]], list[str]]:
    """Leave out, or refuse, images whose class the training images lack."""
    notes = []
    for split in SPLITS:
        unknown = Counter(entry.label for entry in splits[split] if entry.label not in known)
        for label, count in sorted(unknown.items()):
            if on_unknown == "fail":
                raise DataError(
                    f"{name}: class {label!r} has {count} image{'s' * (count > 1)} in {split} but is not in train; "
                    f"add it to train, or pass --on-unknown drop."
                )
            notes.append(f"{count} image{'s' * (count > 1)} of unknown class {label!r} dropped from {split}")
    return {split: [entry for entry in splits[split] if entry.label in known] for split in SPLITS}, notes
