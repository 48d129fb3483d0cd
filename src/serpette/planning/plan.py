"""`plan`: from a profile to the set of sites to remove."""

import os
from collections.abc import Collection, Sequence
from typing import get_args

from serpette.errors import PlanError
from serpette.planning.rankings import PARTS_OF, Unit, candidates, deepest, redundant, uniform, window
from serpette.records import METHODS, Method, Plan, Profile, Site

# Methods that state what they remove; `random` and `deepest` are told.
UNIT_OF: dict[Method, Unit] = {
    "block": "block",
    "attention": "attention",
    "mlp": "mlp",
    "joint": "joint",
    "contiguous": "block",
}
NOUNS: dict[Unit, str] = {"block": "blocks", "attention": "attentions", "mlp": "MLPs", "joint": "sublayers"}


def plan(
    profile: Profile | str | os.PathLike[str],
    *,
    method: Method,
    drop: int,
    seed: int = 0,
    unit: Unit = "block",
    protect: Sequence[int] = (),
) -> Plan:
    """Choose the sites to remove from the model that a profile is about.

    Sites with NaN or infinity are never chosen.

    Args:
        profile: the profile, or a file that `Profile.save` wrote.
        method: `block`, `attention`, `mlp`: the most redundant sites of that kind. `joint`: the most redundant
            sublayers of both kinds. `contiguous`: the run of blocks whose ends are most alike. `random`, `deepest`:
            baselines that look at no score.
        drop: how many blocks, or sublayers for `attention`, `mlp` and `joint`.
        seed: of `random`.
        unit: what `random` and `deepest` remove; the other methods say it themselves.
        protect: blocks that stay whole.

    Raises:
        PlanError: no such method, unit or block, or `drop` is out of reach.
        RecordError: the file is not a profile.
    """
    if not isinstance(profile, Profile):
        profile = Profile.load(profile)
    check_words(method, unit)
    unit = UNIT_OF.get(method, unit)
    check_reach(profile, unit, drop, protect)
    sites = choose(profile, method, drop, seed, unit, protect)
    chosen = Plan(
        drop_blocks=blocks_of(sites, "block"),
        drop_attention=blocks_of(sites, "attention"),
        drop_mlp=blocks_of(sites, "mlp"),
        method=method,
        drop=drop,
        depth=profile.depth,
        seed=seed if method == "random" else None,
        model=profile.model.name,
        profile=profile.content_hash,
    )
    chosen.check(profile.depth)
    return chosen


def choose(
    profile: Profile, method: Method, drop: int, seed: int, unit: Unit, protect: Collection[int]
) -> tuple[Site, ...]:
    """The sites that a method removes, within reach.

    Raises:
        PlanError: no run of `drop` blocks is free of protected and unmeasured ones.
    """
    free = candidates(profile, unit, protect)
    match method:
        case "random":
            return uniform(free, drop, seed)
        case "deepest":
            return deepest(free, drop)
        case "contiguous":
            sites = window(profile, {score.block for score in free}, drop)
            if not sites:
                why = reasons(profile, unit, protect)
                raise PlanError(f"No run of {drop} consecutive blocks is free{why}; ask for a shorter one.")
            return sites
        case _:
            return redundant(free, drop)


def check_words(method: str, unit: str) -> None:
    """Refuse words that are no method or unit.

    Raises:
        PlanError: names the ones that are.
    """
    for kind, word, known in (("method", method, METHODS), ("unit", unit, get_args(Unit))):
        if word not in known:
            raise PlanError(f"unknown {kind} {word!r}; expected one of {', '.join(known)}.")


def check_reach(profile: Profile, unit: Unit, drop: int, protect: Collection[int]) -> None:
    """Refuse a drop count that cannot be met.

    Raises:
        PlanError: fewer than 1, all sites of the kind, or more than are free; or a protected block does not exist.
    """
    depth, noun = profile.depth, NOUNS[unit]
    if outside := sorted(block for block in set(protect) if not 0 <= block < depth):
        raise PlanError(f"Cannot protect block {outside[0]}: this model has {depth} blocks (0-{depth - 1}).")
    everything = depth * len(PARTS_OF[unit])
    if drop < 1:
        raise PlanError(f"Cannot drop {drop} {noun}; expected 1 to {everything - 1}.")
    if drop >= everything:
        raise PlanError(
            f"Dropping {drop} {noun} would leave none: this model has {everything}. Ask for 1 to {everything - 1}."
        )
    free = len(candidates(profile, unit, protect))
    if drop > free:
        raise PlanError(
            f"Cannot drop {drop} {noun}: only {free} of {everything} are free{reasons(profile, unit, protect)}. "
            f"Ask for at most {free}."
        )


def reasons(profile: Profile, unit: Unit, protect: Collection[int]) -> str:
    """In brackets, why sites of a kind are not free: which are protected, which were not measured."""
    unmeasured = [
        str(Site(score.block, score.part))
        for part in PARTS_OF[unit]
        for score in profile.part(part)
        if not score.rankable
    ]
    why = []
    if protect:
        why.append(f"protected: {', '.join(f'block {block}' for block in sorted(set(protect)))}")
    if unmeasured:
        why.append(f"NaN, infinity or not measured: {', '.join(unmeasured)}")
    return f" ({'; '.join(why)})" if why else ""


def blocks_of(sites: Sequence[Site], part: str) -> tuple[int, ...]:
    """The blocks of the sites of one part."""
    return tuple(site.block for site in sites if site.part == part)
