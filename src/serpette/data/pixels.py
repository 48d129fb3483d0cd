"""The decoded images of one split at one preprocessing: decoded once, in order, by threads that work ahead.

Two ways to hold them. Stored: good images lie one after the other in one tensor, batches are slices of it, and a pass
that stops early leaves what it decoded for the next. Passing: there is no room, every pass decodes again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from serpette.data.content import content_hash, fingerprint
from serpette.data.dataset import Dataset, Item
from serpette.data.decode import BadImage, decode
from serpette.data.prefetch import Prefetch, default_workers
from serpette.data.splits import canonical, draw
from serpette.data.store import allocate
from serpette.errors import DataError
from serpette.records import BadFile, DataRef, Preprocessing

_AHEAD_BYTES = 256 * 2**20  # of decoded images that wait for the model
_LISTED = 20  # bad paths in a reference


@dataclass(frozen=True, slots=True)
class _Decoded:
    content: str
    pixels: UInt8[np.ndarray, "3 S S"]


_Outcome = _Decoded | BadImage


class Pixels:
    """Images of `split`, resized and cropped for `preprocessing`, as uint8 tensors.

    `limit` draws that many images with `seed`, each class in proportion; they keep the order of the split. A bad image
    is left out and listed, or with `on_bad="fail"` stops the pass. `len` counts the images asked for, `n` the good
    ones. Nothing is decoded before the first batch or the first question that needs it.

    Not for use by several threads at once.

    Raises:
        DataError: no such split, no images in it, or a limit below 1.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        preprocessing: Preprocessing,
        *,
        limit: int | None = None,
        seed: int = 0,
        on_bad: Literal["skip", "fail"] = "skip",
        workers: int | None = None,
        cache: Literal["auto", "none"] = "auto",
    ) -> None:
        items = dataset.split(split)
        if not items:
            raise DataError(f"the split {split!r} of {dataset.name} holds no images; expected at least one.")
        if limit is not None and limit < 1:
            raise DataError(f"a limit of {limit} leaves no images; expected at least 1.")
        self.dataset = dataset
        self.split = canonical(split) or split
        self.preprocessing = preprocessing
        self._wanted = draw(items, limit or len(items), seed, path=lambda i: i.path, label=lambda i: i.label)
        self._notes = dataset.notes
        if len(self._wanted) < len(items):
            self._notes += (f"{len(self._wanted)} of {len(items)} images of {self.split}, stratified, seed {seed}",)
        self._on_bad = on_bad
        self._workers = workers or default_workers()
        self._caching = cache == "auto"
        self._store: UInt8[Tensor, "n 3 S S"] | None = None
        self._feed: Prefetch[Item, _Outcome] | None = None
        self._seen = 0  # wanted images whose outcome is known; good and bad ones add up to it
        self._good: list[Item] = []
        self._contents: list[str] = []
        self._bad: list[BadFile] = []

    def __len__(self) -> int:
        return len(self._wanted)

    def batches(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        """The good images in order, `batch_size` at a time and the rest in the last batch, with the class indices.

        Batches may be views of the cache: do not write to them.

        Raises:
            DataError: a bad image under `on_bad="fail"`, no good image at all, or a batch size below 1.
        """
        if batch_size < 1:
            raise DataError(f"a batch of {batch_size} images is not possible; expected at least 1.")
        if (store := self._room()) is not None:
            yield from self._stored_batches(store, batch_size)
        else:
            yield from self._passing_batches(batch_size)

    @property
    def labels(self) -> Int64[Tensor, " N"]:
        """The class indices of the good images, in order."""
        return _labels(self.items)

    @property
    def items(self) -> tuple[Item, ...]:
        """The good images, in order."""
        self._know_all()
        return tuple(self._good)

    @property
    def bad(self) -> tuple[BadFile, ...]:
        """The bad images, in order, with the reasons."""
        self._know_all()
        return tuple(self._bad)

    @property
    def n(self) -> int:
        """The number of good images."""
        return len(self.items)

    @property
    def n_bad(self) -> int:
        """The number of bad images."""
        return len(self.bad)

    def ref(self) -> DataRef:
        """Which images these are, for the records of what was computed on them."""
        self._know_all()
        classes = self.dataset.classes
        return DataRef(
            name=self.dataset.name,
            split=self.split,
            fingerprint=fingerprint(zip(self._contents, (classes[item.label] for item in self._good), strict=True)),
            classes=classes,
            n=len(self._good),
            n_bad=len(self._bad),
            bad=tuple(file.path for file in self._bad[:_LISTED]),
            notes=self._notes,
        )

    # Stored ------------------------------------------------------------------------------------------------------

    def _room(self) -> UInt8[Tensor, "n 3 S S"] | None:
        if self._store is None and self._caching:
            self._store = allocate(len(self._wanted), self.preprocessing.image_size)
            self._caching = self._store is not None  # no room now: decide once
        return self._store

    def _stored_batches(
        self, store: UInt8[Tensor, "n 3 S S"], batch_size: int
    ) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        start = 0
        try:
            while True:
                self._fill(start + batch_size, self._ahead(batch_size))
                stop = min(start + batch_size, len(self._good))
                if start == stop:
                    return
                yield store[start:stop], _labels(self._good[start:stop])
                start = stop
        finally:
            self._pause()

    def _fill(self, count: int, ahead: int) -> None:
        """Decode until `count` good images are stored or none is left to decode."""
        while len(self._good) < count and self._seen < len(self._wanted):
            if self._feed is None:
                self._feed = Prefetch(self._load, self._wanted[self._seen :], workers=self._workers, ahead=ahead)
            self._keep(next(self._feed))
            self._check()
        self._check()

    def _pause(self) -> None:
        """Stop the threads and keep what they have decoded ahead, so that no image is decoded twice."""
        if self._feed is not None:
            feed, self._feed = self._feed, None
            for outcome in feed.close():
                self._keep(outcome)

    def _keep(self, outcome: _Outcome) -> None:
        if isinstance(outcome, _Decoded) and self._store is not None:
            # numpy copies on this thread; torch would wake its own, which wait for those that decode
            self._store.numpy()[len(self._good)] = outcome.pixels
        self._note(outcome)

    # Passing -----------------------------------------------------------------------------------------------------

    def _passing_batches(self, batch_size: int) -> Iterator[tuple[UInt8[Tensor, "B 3 S S"], Int64[Tensor, " B"]]]:
        pixels: list[UInt8[np.ndarray, "3 S S"]] = []
        labels: list[int] = []
        for item, image in self._pass(self._ahead(batch_size)):
            pixels.append(image)
            labels.append(item.label)
            if len(pixels) == batch_size:
                yield torch.from_numpy(np.stack(pixels)), torch.tensor(labels)
                pixels, labels = [], []
        if pixels:
            yield torch.from_numpy(np.stack(pixels)), torch.tensor(labels)

    def _pass(self, ahead: int) -> Iterator[tuple[Item, UInt8[np.ndarray, "3 S S"]]]:
        """Decode all images but those known to be bad, and note the outcomes that are new."""
        known_bad = {file.path for file in self._bad}
        wanted = [(i, item) for i, item in enumerate(self._wanted) if item.path not in known_bad]
        feed = Prefetch(self._load, [item for _, item in wanted], workers=self._workers, ahead=ahead)
        try:
            for (i, item), outcome in zip(wanted, feed, strict=True):
                if i >= self._seen:
                    self._note(outcome)
                elif isinstance(outcome, BadImage):
                    raise DataError(f"{item.path} was good before and is bad now ({outcome.reason}); restore it.")
                self._check()
                if isinstance(outcome, _Decoded):
                    yield item, outcome.pixels
        finally:
            feed.close()
        self._check()

    # Both --------------------------------------------------------------------------------------------------------

    def _know_all(self) -> None:
        if self._seen == len(self._wanted):
            self._check()
        elif self._room() is not None:
            try:
                self._fill(len(self._wanted), self._ahead(self._workers))
            finally:
                self._pause()
        else:
            for _ in self._pass(self._ahead(self._workers)):
                pass

    def _ahead(self, batch_size: int) -> int:
        """How many images to decode ahead: two batches, so that the model need not wait, within a bound on memory."""
        affordable = _AHEAD_BYTES // (3 * self.preprocessing.image_size**2)
        return max(1, min(2 * batch_size, affordable))

    def _load(self, item: Item) -> _Outcome:
        """Read, hash and decode one image; runs in a thread."""
        try:
            raw = self.dataset.read(item)
            pixels = decode(raw, self.preprocessing).transpose(2, 0, 1)  # (S, S, 3) -> (3, S, S)
        except BadImage as bad:
            return bad
        return _Decoded(content_hash(raw), np.ascontiguousarray(pixels))

    def _note(self, outcome: _Outcome) -> None:
        item = self._wanted[self._seen]
        self._seen += 1
        if isinstance(outcome, BadImage):
            self._bad.append(BadFile(path=item.path, split=self.split, reason=outcome.reason))
        else:
            self._good.append(item)
            self._contents.append(outcome.content)

    def _check(self) -> None:
        name = self.dataset.name
        if self._bad and self._on_bad == "fail":
            first = self._bad[0]
            raise DataError(f"{name}: {first.path} is bad: {first.reason}; mend it, or pass --on-bad skip.")
        if self._seen == len(self._wanted) and not self._good:
            first = self._bad[0]
            raise DataError(
                f"{name}: none of the {len(self._bad)} images of {self.split} is good; expected at least one. "
                f"The first, {first.path}: {first.reason}."
            )


def _labels(items: tuple[Item, ...] | list[Item]) -> Int64[Tensor, " B"]:
    return torch.tensor([item.label for item in items], dtype=torch.int64)
