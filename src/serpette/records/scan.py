"""What is in a dataset: counts, sizes, modes, bad files, duplicates across splits."""

from typing import ClassVar

from serpette.records.base import Frozen, Record


class SplitScan(Frozen):
    """One split: images per class (classes without an image have 0), sizes and modes that occur."""

    split: str
    n: int
    per_class: dict[str, int]
    width: tuple[int, int, int]  # smallest, median, largest
    height: tuple[int, int, int]
    modes: dict[str, int]
    imbalance: float | None  # images of the largest class / of the smallest that has any
    majority_baseline: float  # percent


class BadFile(Frozen):
    """A file that cannot be used, and why."""

    path: str
    split: str
    reason: str


class Duplicate(Frozen):
    """Images with equal pixels in more than one split: a leak from training into validation or test."""

    paths: tuple[str, ...]
    splits: tuple[str, ...]
    classes: tuple[str, ...]


class Scan(Record):
    """The result of `scan`."""

    kind: ClassVar[str] = "scan"
    name: str
    layout: str  # how the dataset was read: "folder with train/val/test", "manifest", ...
    class_order: str  # the rule that orders the classes
    classes: tuple[str, ...]
    splits: tuple[SplitScan, ...]
    bad: tuple[BadFile, ...]
    duplicates: tuple[Duplicate, ...]
    notes: tuple[str, ...]
    fingerprint: str
