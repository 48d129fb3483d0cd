"""The manifest that lies in every folder that serpette saves."""

from typing import Any, ClassVar, Literal

from serpette.records.base import Record
from serpette.records.common import Part, Preprocessing
from serpette.records.plan import Plan

MANIFEST = "pruning.json"


class Pruning(Record):
    """What a saved folder holds, and all that is needed to load it with equal outputs.

    Attributes:
        form: whose format the folder is in. "timm" and "transformers" load in their library without serpette.
        base: the name of the dense model.
        plan: what was removed from it; `kept` are the original numbers of the blocks that stayed.
        half_blocks: position in the saved model -> the branch that is left of that block.
        blueprint: how to build the architecture, with as many whole blocks as there are entries in `kept`.
        classes: the names of the classes of the model's head, in the order of its outputs.
        files: name -> SHA-256 of every other file.
    """

    kind: ClassVar[str] = "pruning"
    form: Literal["timm", "transformers", "serpette"]
    library: Literal["timm", "transformers"]
    base: str
    plan: Plan
    kept: tuple[int, ...]
    half_blocks: dict[int, Part]
    blueprint: dict[str, Any]
    preprocessing: Preprocessing
    classes: tuple[str, ...] | None
    dtype: str
    files: dict[str, str]
    versions: dict[str, str]
