"""Names of splits, and drawing images by lot: the same images on every machine, whatever the order they are listed in.

A lot is the hash of the seed and the image's id. Unlike a shuffled list, it depends on no random generator's version,
and adding an image leaves the lots of the others alone.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from serpette.data.listing import Entry

SPLITS = ("train", "val", "test")
_ALIASES = {
    **{name: name for name in SPLITS},
    "training": "train",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "testing": "test",
}

T = TypeVar("T")


def canonical(name: str) -> str | None:
    """The canonical name of a split ("validation" -> "val"), or None if `name` is not the name of a split."""
    return _ALIASES.get(name.strip().lower())


def cut(entries: Sequence[Entry], shares: dict[str, float], seed: int) -> dict[str, list[Entry]]:
    """Divide images into splits, class by class, in the order in which they are listed.

    Each split but the first gets its share of every class, rounded, and at least one image where the class has an image
    for every split; the first split gets the rest.
    """
    home: dict[str, str] = {}
    first, *others = shares
    for members in _groups(entries, lambda entry: entry.label).values():
        drawn = sorted(members, key=lambda entry: _lot(seed, "split", entry.path))
        for split in others:
            count = max(1, round(shares[split] * len(members))) if len(members) >= len(shares) else 0
            home.update((entry.path, split) for entry in drawn[:count])
            drawn = drawn[count:]
        home.update((entry.path, first) for entry in drawn)
    return {split: [entry for entry in entries if home[entry.path] == split] for split in shares}


def draw(
    items: Sequence[T], limit: int, seed: int, *, path: Callable[[T], str], label: Callable[[T], Hashable]
) -> tuple[T, ...]:
    """At most `limit` items, each class in proportion to its size (largest remainder), in the order of `items`.

    Classes with equal remainders are drawn by lot too, so that the first classes have no advantage.
    """
    if limit >= len(items):
        return tuple(items)
    groups = _groups(items, label)
    exact = {name: limit * len(members) / len(items) for name, members in groups.items()}
    count = {name: math.floor(quota) for name, quota in exact.items()}
    by_remainder = sorted(groups, key=lambda name: (count[name] - exact[name], _lot(seed, "class", str(name))))
    for name in by_remainder[: limit - sum(count.values())]:
        count[name] += 1
    chosen = {
        path(item)
        for name, members in groups.items()
        for item in sorted(members, key=lambda item: _lot(seed, "limit", path(item)))[: count[name]]
    }
    return tuple(item for item in items if path(item) in chosen)


def _groups(items: Iterable[T], label: Callable[[T], Hashable]) -> dict[Hashable, list[T]]:
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[label(item)].append(item)
    return groups


def _lot(seed: int, purpose: str, path: str) -> bytes:
    return hashlib.sha256(f"{seed}/{purpose}/{path}".encode(errors="surrogateescape")).digest()
