"""HDF5 files as datasets: `images`, `labels`, and maybe `classes` and `split`.

`images` is one array (N, H, W) or (N, H, W, C), or a group whose members "0", "1", ... are arrays of different sizes or
the bytes of encoded files; `labels` are N names, or N integers that are names themselves unless `classes` names them.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from serpette.data.listing import UNSPLIT, Entry, Listing
from serpette.data.opening import Raw
from serpette.data.sources import make_id, parse_id
from serpette.data.splits import SPLITS, canonical
from serpette.errors import DataError


def read_hdf5(path: Path) -> Listing:
    """List the images of an HDF5 file.

    Raises:
        DataError: h5py is missing, the file is not HDF5, or what it holds is not the layout of this module.
    """
    try:
        import h5py
    except ImportError:
        raise DataError(f"reading {path.name} needs h5py; run pip install 'serpette[hdf5]'.") from None
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is not an HDF5 file that can be read ({error}); write it again.") from error
    try:
        return _list(path, file, h5py.Group)
    except BaseException:
        file.close()
        raise


def _list(path: Path, file: Any, group: type) -> Listing:
    for name in ("images", "labels"):
        if name not in file:
            raise DataError(
                f"{path} holds no {name!r} (found: {', '.join(file) or 'nothing'}); expected images, labels."
            )
    images = file["images"]
    classes = _class_names(file)
    labels = _named(path, file["labels"][()], classes)
    if len(images) != len(labels):
        raise DataError(f"{path} holds {len(images)} images but {len(labels)} labels; expected one label per image.")
    grouped = isinstance(images, group)
    _check_images(path, images, grouped)
    return Listing(
        name=path.stem,
        layout="HDF5",
        source=Hdf5Source(images, grouped=grouped),
        splits=_by_split(path, labels, file["split"][()] if "split" in file else None),
        classes=set(classes),
    )


@final
class Hdf5Source:
    """The images of an open HDF5 file, one reader at a time; the library below is not thread-safe."""

    def __init__(self, images: Any, *, grouped: bool) -> None:
        self._images = images
        self._grouped = grouped
        self._lock = threading.Lock()

    def read(self, path: str) -> Raw:
        """The image with the id `path`: an array (H, W[, C]), or encoded bytes where a flat array is stored."""
        index = parse_id(path)[1]
        with self._lock:
            image = self._images[str(index)][()] if self._grouped else self._images[index]
        values = np.asarray(image)
        return values.tobytes() if values.ndim == 1 and values.dtype == np.uint8 else values

    def locate(self, path: str) -> str:
        """The id."""
        return path


def _check_images(path: Path, images: Any, grouped: bool) -> None:
    if grouped:
        missing = next((str(i) for i in range(len(images)) if str(i) not in images), None)
        if missing is not None:
            raise DataError(f"{path} holds no images/{missing}; expected images/0 to images/{len(images) - 1}.")
    elif images.ndim not in (1, 3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3, 4)):
        raise DataError(f"{path} holds images of shape {images.shape}; expected (N, H, W) or (N, H, W, 3).")


def _class_names(file: Any) -> tuple[str, ...]:
    if "classes" in file:
        return tuple(_text(name) for name in file["classes"][()])
    holder = next((h for h in (file, file["labels"]) if "classes" in h.attrs), None)
    return tuple(_text(name) for name in holder.attrs["classes"]) if holder is not None else ()


def _named(path: Path, labels: Any, classes: Sequence[str]) -> list[str]:
    if np.ndim(labels) != 1:
        raise DataError(f"{path} holds labels of shape {np.shape(labels)}; expected one label per image, shape (N,).")
    if labels.dtype.kind not in "iu":
        if labels.dtype.kind not in "OSU":
            raise DataError(f"{path} holds labels of type {labels.dtype}; expected integers or names.")
        return [_text(label) for label in labels]
    if not classes:
        return [str(label) for label in labels]
    outside = next((int(label) for label in labels if not 0 <= label < len(classes)), None)
    if outside is not None:
        raise DataError(
            f"{path} holds the label {outside}, but names {len(classes)} classes; expected 0 to {len(classes) - 1}."
        )
    return [classes[label] for label in labels]


def _by_split(path: Path, labels: Sequence[str], names: Any) -> dict[str, list[Entry]]:
    if names is None:
        return {UNSPLIT: [Entry(make_id("images", i), label) for i, label in enumerate(labels)]}
    if len(names) != len(labels):
        raise DataError(f"{path} holds {len(names)} values of split but {len(labels)} labels; expected one per image.")
    splits: dict[str, list[Entry]] = {}
    for i, (label, name) in enumerate(zip(labels, map(_text, names), strict=True)):
        split = canonical(name)
        if split is None:
            raise DataError(
                f"{path} puts image {i} in the unknown split {name!r}; expected one of {', '.join(SPLITS)}."
            )
        splits.setdefault(split, []).append(Entry(make_id("images", i), label))
    if "train" not in splits:
        raise DataError(f"{path} has no images in the split 'train' (found: {', '.join(splits) or 'none'}); add some.")
    return splits


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
