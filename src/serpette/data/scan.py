"""Look at every image of a dataset before anything is computed on it: what is there, what is bad, what leaks."""

import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from serpette.data.bad_image import BadImage
from serpette.data.content import array_hash, content_hash, fingerprint
from serpette.data.dataset import Dataset, Item, open_dataset
from serpette.data.opening import open_image
from serpette.data.prefetch import Prefetch, default_workers
from serpette.data.rgb import to_rgb
from serpette.data.splits import draw
from serpette.errors import DataError
from serpette.records import BadFile, Duplicate, Scan, SplitScan

_TINY = 32  # pixels; below this a model sees mostly what the interpolation invents
_IMBALANCED = 10.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What remains of one good image after it was looked at."""

    item: Item
    split: str
    content: str  # hash of what is stored
    pixels: str  # hash of the RGB pixels and their shape
    width: int
    height: int
    mode: str


def scan(
    data: str | os.PathLike[str] | Dataset,
    *,
    seed: int = 0,
    class_level: int | None = None,
    on_unknown: Literal["fail", "drop"] = "drop",
    on_bad: Literal["skip", "fail"] = "skip",
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scan:
    """Decode every image in full and describe the dataset; counts are of good images, bad ones are listed.

    Args:
        data: anything that `open_dataset` takes.
        seed: draws missing splits, and the images under `limit`.
        class_level: see `open_dataset`.
        on_unknown: see `open_dataset`.
        on_bad: list bad images, or stop at the first.
        limit: look at no more than this many images of each split, each class in proportion.
        progress: called with (images done, images in all) after each image.

    Raises:
        DataError: the dataset cannot be opened, or an image is bad under `on_bad="fail"`.
    """
    if limit is not None and limit < 1:
        raise DataError(f"a limit of {limit} leaves no images; expected at least 1.")
    dataset = open_dataset(data, seed=seed, class_level=class_level, on_unknown=on_unknown)
    seen, bad = _look(dataset, seed, on_bad, limit, progress)
    splits = tuple(_describe(split, [s for s in seen if s.split == split], dataset.classes) for split in dataset.splits)
    return Scan(
        name=dataset.name,
        layout=dataset.layout,
        class_order=dataset.class_order,
        classes=dataset.classes,
        splits=splits,
        bad=tuple(bad),
        duplicates=_leaks(seen, dataset.classes),
        notes=(*dataset.notes, *_notes(dataset, seen, splits, limit)),
        fingerprint=fingerprint((s.content, f"{s.split} {dataset.classes[s.item.label]}") for s in seen),
    )


def _look(
    dataset: Dataset,
    seed: int,
    on_bad: Literal["skip", "fail"],
    limit: int | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[_Seen], list[BadFile]]:
    wanted = [
        (split, item)
        for split, items in dataset.splits.items()
        for item in draw(items, limit or len(items), seed, path=lambda i: i.path, label=lambda i: i.label)
    ]

    def look(task: tuple[str, Item]) -> _Seen | BadFile:
        split, item = task
        try:
            raw = dataset.read(item)
            image = open_image(raw)
            pixels = array_hash(np.asarray(to_rgb(image)))
        except BadImage as error:
            return BadFile(path=item.path, split=split, reason=error.reason)
        return _Seen(item, split, content_hash(raw), pixels, *image.size, image.mode)

    seen: list[_Seen] = []
    bad: list[BadFile] = []
    workers = default_workers()
    feed = Prefetch(look, wanted, workers=workers, ahead=4 * workers)
    try:
        for done, outcome in enumerate(feed, start=1):
            if isinstance(outcome, _Seen):
                seen.append(outcome)
            elif on_bad == "fail":
                raise DataError(
                    f"{dataset.name}: {outcome.path} is bad: {outcome.reason}; mend it, or pass --on-bad skip."
                )
            else:
                bad.append(outcome)
            if progress is not None:
                progress(done, len(wanted))
    finally:
        feed.close()
    return seen, bad


def _describe(split: str, seen: Sequence[_Seen], classes: tuple[str, ...]) -> SplitScan:
    counts = Counter(s.item.label for s in seen)
    return SplitScan(
        split=split,
        n=len(seen),
        per_class={name: counts[i] for i, name in enumerate(classes)},
        width=_spread([s.width for s in seen]),
        height=_spread([s.height for s in seen]),
        modes=dict(sorted(Counter(s.mode for s in seen).items())),
        imbalance=max(counts.values()) / min(counts.values()) if counts else None,
        majority_baseline=100 * max(counts.values()) / len(seen) if counts else 0.0,
    )


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    return (min(values), statistics.median_low(values), max(values)) if values else (0, 0, 0)


def _leaks(seen: Sequence[_Seen], classes: tuple[str, ...]) -> tuple[Duplicate, ...]:
    return tuple(
        Duplicate(
            paths=tuple(s.item.path for s in equal),
            splits=tuple(s.split for s in equal),
            classes=tuple(classes[s.item.label] for s in equal),
        )
        for equal in _equal_pixels(seen)
        if len({s.split for s in equal}) > 1
    )


def _equal_pixels(seen: Sequence[_Seen]) -> list[list[_Seen]]:
    groups: dict[str, list[_Seen]] = defaultdict(list)
    for s in seen:
        groups[s.pixels].append(s)
    return [group for group in groups.values() if len(group) > 1]


def _notes(dataset: Dataset, seen: Sequence[_Seen], splits: Sequence[SplitScan], limit: int | None) -> list[str]:
    notes = []
    if limit is not None:
        notes.append(f"at most {limit} images of each split were looked at")
    if len(dataset.classes) == 1:
        notes.append("only one class: no head can be fitted or scored")
    for split in splits:
        if not split.n:
            notes.append(f"{split.split} has no good images")
        elif split.imbalance is not None and split.imbalance >= _IMBALANCED:
            notes.append(f"{split.split} is imbalanced: the largest class is {split.imbalance:.3g} times the smallest")
    few = [name for split in splits if split.split == "train" for name, count in split.per_class.items() if count < 2]
    if few:
        notes.append(f"classes with fewer than 2 images in train: {_some(few)}")
    tiny = sum(min(s.width, s.height) < _TINY for s in seen)
    if tiny:
        notes.append(f"images with a side below {_TINY} pixels: {tiny}")
    equal = _equal_pixels(seen)
    within = sum(count - 1 for group in equal for count in Counter(s.split for s in group).values())
    if within:
        notes.append(f"images that repeat another one of the same split: {within}")
    contradictory = sum(len({s.item.label for s in group}) > 1 for group in equal)
    if contradictory:
        notes.append(f"equal images with different classes: {contradictory}")
    return notes


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
