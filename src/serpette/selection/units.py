"""Finished units of work on disk, so that an interrupted run continues where it stopped and repeats nothing."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
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
        try:
            kept = json.loads(file.read_bytes())
            if kept["hash"] == _hash(kept["result"]):
                return kept["result"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not finished, or damaged since: computed once more
        result = json.loads(json.dumps(compute()))  # what a reader would get: lists for tuples
        write_text(file, json.dumps({"hash": _hash(result), "result": result}))
        return result

    def get_tensors(self, inputs: Any, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The same for tensors."""
        file = self._file(inputs, "safetensors")
        try:
            return load(file.read_bytes())
        except (OSError, SafetensorError):
            tensors = compute()
            write_bytes(file, save(tensors))
            return tensors

    def _file(self, inputs: Any, ending: str) -> Path:
        return self._folder / f"{_hash(inputs)}.{ending}"


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
