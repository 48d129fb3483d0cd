"""Finished units of work on disk, so that an interrupted run continues where it stopped and repeats nothing."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from serpette.files import write_bytes, write_text


class Units:
    """A folder with a small file per finished unit, named by the hash of all that determines its result."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, inputs: Any, compute: Callable[[], Any]) -> Any:
        """The result for `inputs`, both JSON values: read if a unit with these inputs is finished, else computed."""
        file = self._file(inputs, "json")
        if not file.is_file():
            write_text(file, json.dumps(compute()))
        return json.loads(file.read_text(encoding="utf-8"))

    def get_tensors(self, inputs: Any, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The same for tensors."""
        file = self._file(inputs, "safetensors")
        if not file.is_file():
            write_bytes(file, save(compute()))
        return load(file.read_bytes())

    def _file(self, inputs: Any, ending: str) -> Path:
        key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]
        return self._folder / f"{key}.{ending}"
