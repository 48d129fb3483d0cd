"""What stays the same through one selection: the model, the data and how they are used."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from serpette.data.dataset import Dataset
from serpette.data.pixels import Pixels
from serpette.evaluation.own_head import own_columns
from serpette.models.base import Adapter
from serpette.models.reference import model_ref
from serpette.models.runtime import provenance
from serpette.progress import Phase
from serpette.records import HeadKind
from serpette.selection.units import Units


@dataclass(frozen=True)
class Setting:
    """The dense model, the dataset, the kind of head, and where finished work is kept."""

    dense: Adapter
    dataset: Dataset
    head: HeadKind
    batch_size: int
    seed: int
    on_bad: Literal["skip", "fail"]
    phase: Phase
    units: Units

    @cached_property
    def columns(self) -> list[int]:
        """For each class of the data, the output of the model's own classifier; for `head` "own"."""
        return own_columns(self.dense, self.dataset.classes)

    def pixels(self, split: str, limit: int | None) -> Pixels:
        """At most `limit` images of a split."""
        return Pixels(self.dataset, split, self.dense.preprocessing, limit=limit, seed=self.seed, on_bad=self.on_bad)

    def key(self, unit: str, *pixels: Pixels, **more: Any) -> dict[str, Any]:
        """Everything that determines the result of a unit of work on some images."""
        return {
            "unit": unit,
            "model": self._model,
            "preprocessing": self.dense.preprocessing.model_dump(mode="json"),
            "software": provenance(self.dense.model, self.seed).model_dump(mode="json", exclude={"created"}),
            "images": [(p.split, p.ref().fingerprint) for p in pixels],
            "classes": self.dataset.classes,
            "head": self.head,
            **more,
        }

    @cached_property
    def _model(self) -> dict[str, Any]:
        return model_ref(self.dense).model_dump(mode="json", exclude={"name"})
