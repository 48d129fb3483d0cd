"""The set of sites to remove from one model."""

from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import field_validator, model_validator

from serpette.errors import PlanError
from serpette.records.base import Record
from serpette.records.common import Part

Method = Literal["block", "attention", "mlp", "joint", "contiguous", "random", "deepest", "manual"]
METHODS: tuple[Method, ...] = ("block", "attention", "mlp", "joint", "contiguous", "random", "deepest")


class Site(NamedTuple):
    """One removable thing: a block, or the attention or MLP sublayer of a block. Blocks count from 0."""

    block: int
    part: Part

    def __str__(self) -> str:
        return f"block {self.block}" if self.part == "block" else f"{self.part} of block {self.block}"


class Plan(Record):
    """What to remove, in the numbering of the dense model.

    A block whose two sublayers both go is a block drop and stands in `drop_blocks` alone. `drop` is the count that was
    asked for: blocks, or sublayers for `attention`, `mlp` and `joint`. `profile` is the content hash of the profile
    that ranked the sites.
    """

    kind: ClassVar[str] = "plan"
    drop_blocks: tuple[int, ...] = ()
    drop_attention: tuple[int, ...] = ()
    drop_mlp: tuple[int, ...] = ()
    method: Method = "manual"
    drop: int = 0
    depth: int | None = None
    seed: int | None = None
    model: str | None = None
    profile: str | None = None

    @field_validator("drop_blocks", "drop_attention", "drop_mlp")
    @classmethod
    def _sorted(cls, indices: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(indices)) != len(indices):
            raise ValueError(f"a block is named twice in {list(indices)}")
        if any(i < 0 for i in indices):
            raise ValueError(f"blocks count from 0, found {min(indices)}")
        return tuple(sorted(indices))

    @model_validator(mode="after")
    def _fold(self) -> Self:
        whole = set(self.drop_blocks) | (set(self.drop_attention) & set(self.drop_mlp))
        folded = {
            "drop_blocks": tuple(sorted(whole)),
            "drop_attention": tuple(i for i in self.drop_attention if i not in whole),
            "drop_mlp": tuple(i for i in self.drop_mlp if i not in whole),
        }
        for name, indices in folded.items():
            object.__setattr__(self, name, indices)
        return self

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites to remove, blocks first."""
        return (
            *(Site(i, "block") for i in self.drop_blocks),
            *(Site(i, "attention") for i in self.drop_attention),
            *(Site(i, "mlp") for i in self.drop_mlp),
        )

    @property
    def label(self) -> str:
        """A short name, such as `block-4` or `joint-6`."""
        return f"{self.method}-{self.drop}" if self.method != "manual" else "manual"

    def check(self, depth: int) -> None:
        """Make sure that the plan fits a model of `depth` blocks and leaves a working model.

        Raises:
            PlanError: the plan was made for another depth, names a block that the model lacks, or leaves no block, no
                attention or no MLP at all.
        """
        if self.depth is not None and self.depth != depth:
            raise PlanError(f"The plan was made for a model of {self.depth} blocks, but this model has {depth}.")
        highest = max((site.block for site in self.sites), default=-1)
        if highest >= depth:
            raise PlanError(
                f"Plan removes block {highest}, but this model has {depth} blocks (0-{depth - 1}). "
                f"Plans are zero-based; did you mean {depth - 1}?"
            )
        blocks = len(self.drop_blocks)
        if blocks == depth:
            raise PlanError(f"Plan removes all {depth} blocks; at least one must stay. Ask for fewer.")
        for part, dropped in (("attention", self.drop_attention), ("mlp", self.drop_mlp)):
            if blocks + len(dropped) == depth:
                raise PlanError(
                    f"Plan removes the {part} of all {depth} blocks; at least one must stay. Ask for fewer."
                )
