"""What came out, in one sentence."""

from serpette.records import Plan, Selection
from serpette.report.formats import count, listing, percent, points, times

_MANY = 6


def verdict(selection: Selection) -> str:
    """The outcome of a selection in one sentence."""
    winner, name = selection.winner, selection.model.name
    if winner.method == "baseline":
        tried = count(len(selection.candidates), "candidate")
        return (
            f"Keep {name} as it is: none of {tried} was good enough to replace the unpruned model, "
            f"whose test accuracy is {percent(winner.test_top1)}."
        )
    sites, less = sites_in_words(winner.plan), percent(winner.gflops_reduction)
    before, after = selection.baseline.test_top1, winner.test_top1
    accuracy = f"test accuracy goes from {percent(before)} to {percent(after)} ({points(after - before)})"
    if inside_noise(selection):
        return (
            f"Removing {sites} takes {less} of the FLOPs of {name} away, but the measured speed-up of "
            f"{times(winner.speedup)} lies inside the noise; {accuracy}."
        )
    effect = f"{times(winner.speedup)} faster" if winner.speedup >= 1 else f"slower ({times(winner.speedup)})"
    link = "and" if winner.speedup >= 1 else "although it"
    return f"Removing {sites} makes {name} {effect} {link} removes {less} of its FLOPs; {accuracy}."


def inside_noise(selection: Selection) -> bool:
    """Whether the speed-up cannot be told from none."""
    low, high = selection.winner_cost.speedup_low, selection.winner_cost.speedup_high
    return bool(selection.winner.speedup_note) or (low is not None and high is not None and low <= 1 <= high)


def sites_in_words(plan: Plan) -> str:
    """The sites of a plan: block 3, the attention of blocks 9 and 11 and the MLP of block 7."""
    groups = (
        _group("", plan.drop_blocks, "whole block"),
        _group("the attention of ", plan.drop_attention, "attention sublayer"),
        _group("the MLP of ", plan.drop_mlp, "MLP sublayer"),
    )
    return listing([group for group in groups if group]) or "nothing"


def _group(prefix: str, blocks: tuple[int, ...], noun: str) -> str:
    if len(blocks) > _MANY:
        return count(len(blocks), noun)
    return f"{prefix}{'block' if len(blocks) == 1 else 'blocks'} {listing(blocks)}" if blocks else ""
