"""Where the stored images are: each source gives the raw content of one image by its id, from any thread."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from serpette.data.opening import Raw, read_file


@runtime_checkable
class Source(Protocol):
    """Reads images by id; every method may be called from several threads at once."""

    def read(self, path: str) -> Raw:
        """The stored content of one image.

        Raises:
            BadImage: it cannot be read.
        """
        ...

    def locate(self, path: str) -> str:
        """The absolute path of the image's file, or the id where the image is not a file of its own."""
        ...


@final
class FileSource:
    """Files below a folder; absolute paths are taken as they are."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def read(self, path: str) -> bytes:
        """The bytes of the file at `path`.

        Raises:
            BadImage: it cannot be read.
        """
        return read_file(self._root / path)

    def locate(self, path: str) -> str:
        """The absolute path."""
        return str(self._root / path)


@final
class ArraySource:
    """Arrays in memory, each holding many images; the id of an image is `name[index]`."""

    def __init__(self, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        self._arrays = dict(arrays)

    def read(self, path: str) -> Shaped[np.ndarray, "..."]:
        """The image (H, W[, C]) with the id `path`, not copied."""
        name, index = parse_id(path)
        return np.asarray(self._arrays[name][index])

    def locate(self, path: str) -> str:
        """The id."""
        return path


def make_id(name: str, index: int) -> str:
    """The id of image `index` in the array `name`: `images[17]`."""
    return f"{name}[{index}]"


def parse_id(path: str) -> tuple[str, int]:
    """The name of the array and the index, from an id such as `images[17]`."""
    name, _, index = path.removesuffix("]").rpartition("[")
    return name, int(index)
