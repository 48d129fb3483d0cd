"""Which plans are tried: every method at every drop count that it allows."""

from collections.abc import Sequence
from typing import NamedTuple

from serpette.errors import PlanError
from serpette.planning.plan import plan
from serpette.records import Method, Plan, Profile


class Proposal(NamedTuple):
    """A plan, or the reason why this method has none at this drop count."""

    method: Method
    drop: int
    plan: Plan | None
    reason: str = ""


def default_drops(depth: int) -> tuple[int, ...]:
    """Drop counts for a model of `depth` blocks: up to half of a model of 12, steps of 4 in a deeper one."""
    if depth > 12:
        return tuple(range(4, depth, 4))
    return tuple(drop for drop in (1, 2, 3, 4, 6) if 2 * drop <= depth) or (1,)


def propose(profile: Profile, methods: Sequence[Method], drops: Sequence[int], seed: int) -> list[Proposal]:
    """One proposal per method and drop count, in that order."""
    proposals = []
    for method in methods:
        for drop in drops:
            try:
                proposals.append(Proposal(method, drop, plan(profile, method=method, drop=drop, seed=seed)))
            except PlanError as error:
                proposals.append(Proposal(method, drop, None, str(error)))
    return proposals
