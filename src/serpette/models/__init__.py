"""Adapters: everything that knows how timm and transformers build and store their models."""

from serpette.models.base import (
    Adapter,
    Branches,
    Origin,
    RemainingBranch,
    adapt,
    inference,
    sharing_copy,
    stream_in,
    stream_out,
)

__all__ = [
    "Adapter",
    "Branches",
    "Origin",
    "RemainingBranch",
    "adapt",
    "inference",
    "sharing_copy",
    "stream_in",
    "stream_out",
]
