"""Which sites a method removes, most willingly removed first. Pure functions of a profile, free of torch.

The methods are those of Viespoli & Nanni (2026) and He et al. (TMLR 2026), with `deepest` and `random` as baselines.
Equal scores are broken by position, deeper first.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Literal

from serpette.records import Part, Profile, Site, SiteScore

Unit = Literal["block", "attention", "mlp", "joint"]
PARTS_OF: dict[Unit, tuple[Part, ...]] = {
    "block": ("block",),
    "attention": ("attention",),
    "mlp": ("mlp",),
    "joint": ("attention", "mlp"),
}


def position(site: Site) -> tuple[int, bool]:
    """Where a site lies in the stream: the MLP of a block comes after its attention."""
    return site.block, site.part == "mlp"


def candidates(profile: Profile, unit: Unit, protect: Collection[int]) -> tuple[SiteScore, ...]:
    """The sites of a kind that may go: rankable and not in a protected block."""
    sites = (site for part in PARTS_OF[unit] for site in profile.part(part))
    return tuple(site for site in sites if site.rankable and site.block not in protect)


def redundant(scores: Sequence[SiteScore], drop: int) -> tuple[Site, ...]:
    """The `drop` sites of highest cosine."""

    def key(score: SiteScore) -> tuple[float, tuple[int, bool]]:
        assert score.cosine is not None
        return score.cosine, position(site_of(score))

    return tuple(site_of(score) for score in sorted(scores, key=key, reverse=True)[:drop])


def deepest(scores: Sequence[SiteScore], drop: int) -> tuple[Site, ...]:
    """The last `drop` sites of the stream, whatever their scores."""
    return tuple(sorted(map(site_of, scores), key=position, reverse=True)[:drop])


def uniform(scores: Sequence[SiteScore], drop: int, seed: int) -> tuple[Site, ...]:
    """`drop` sites drawn uniformly, whatever their scores."""
    return tuple(Random(seed).sample(sorted(map(site_of, scores), key=position), drop))


def window(profile: Profile, free: Collection[int], length: int) -> tuple[Site, ...]:
    """The run of `length` blocks in `free` whose ends are most alike; empty if there is none."""
    runs = [
        (score.cosine, score.start)
        for score in profile.windows
        if score.length == length
        and score.cosine is not None
        and all(block in free for block in range(score.start, score.start + length))
    ]
    if not runs:
        return ()
    _, start = max(runs)
    return tuple(Site(block, "block") for block in range(start, start + length))


def site_of(score: SiteScore) -> Site:
    """The site that a score is about."""
    return Site(score.block, score.part)
