"""Finished units of work on disk, so that an interrupted run continues where it stopped and repeats nothing."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serpette.files import write_text


class Units:
    """A folder with a small JSON file per finished unit, named by the hash of all that determines its result."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, inputs: Any, compute: Callable[[], Any]) -> Any:
        """The result for `inputs` (any JSON value): read if a unit with these inputs is finished, else computed."""
        key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]
        file = self._folder / f"{key}.json"
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8"))
        result = compute()
        write_text(file, json.dumps(result))
        return result
