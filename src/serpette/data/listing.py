"""What the reader of a layout finds: the images and the names of their classes, before splits are completed."""

from dataclasses import dataclass, field
from typing import NamedTuple

from serpette.data.sources import Source

UNSPLIT = ""  # the name of the one split of a layout that has no splits


class Entry(NamedTuple):
    """One image by its id, and the name of its class."""

    path: str
    label: str


@dataclass
class Listing:
    """All images of a dataset as its layout gives them.

    `splits` has canonical names, or `UNSPLIT` alone; `classes` are further names that exist without an image.
    """

    name: str
    layout: str
    source: Source
    splits: dict[str, list[Entry]]
    classes: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
