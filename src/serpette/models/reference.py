"""The record of which model a result is about."""

from serpette.models.base import Adapter
from serpette.models.weights import weights_hash
from serpette.records import ModelRef


def model_ref(adapter: Adapter) -> ModelRef:
    """Name, architecture and content hash of a model."""
    origin = adapter.origin
    return ModelRef(
        name=origin.name,
        library=adapter.library,
        family=adapter.family,
        architecture=adapter.architecture,
        depth=len(adapter.blocks),
        image_size=adapter.preprocessing.image_size,
        weights=weights_hash(adapter.model),
        plan="" if origin.plan is None else origin.plan.content_hash,
    )
