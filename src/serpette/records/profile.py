"""How redundant each site of one model is on one set of images."""

from typing import ClassVar, Literal

from serpette.records.base import Frozen, Record
from serpette.records.common import DataRef, ModelRef, Part, Provenance

Tokens = Literal["all", "cls", "patch", "pooled"]


class SiteScore(Frozen):
    """The redundancy of one site; `None` where it could not be measured.

    `cosine` is the mean over images and tokens of cos(stream before, stream after) with a 95 % interval over images;
    `angular` the mean of arccos(cos)/pi, in [0, 1]; `relative_norm` the mean of |after - before| / |before|; `cka` the
    linear CKA of the token means. Tokens of zero norm or with NaN or infinity are counted and left out of the means.
    """

    block: int
    part: Part
    cosine: float | None
    cosine_low: float | None
    cosine_high: float | None
    angular: float | None
    relative_norm: float | None
    cka: float | None
    zero_tokens: int = 0
    nonfinite_tokens: int = 0

    @property
    def rankable(self) -> bool:
        """Whether the score may be used to rank: measured, and free of NaN and infinity."""
        return self.cosine is not None and self.nonfinite_tokens == 0


class WindowScore(Frozen):
    """cos(stream entering block `start`, stream leaving block `start + length - 1`)."""

    start: int
    length: int
    cosine: float | None


class Profile(Record):
    """The result of `measure`: one score per site, and the windows that `contiguous` needs.

    `stability` is Kendall's tau between the rankings on the even and on the odd images, per part.
    """

    kind: ClassVar[str] = "profile"
    model: ModelRef
    data: DataRef
    provenance: Provenance
    tokens: Tokens
    images: int
    depth: int
    sites: tuple[SiteScore, ...]
    windows: tuple[WindowScore, ...]
    stability: dict[Part, float | None]

    def part(self, part: Part) -> tuple[SiteScore, ...]:
        """The scores of all sites of one part, in order of depth."""
        return tuple(site for site in self.sites if site.part == part)
