"""The rule by which a winner is chosen, on validation accuracy and cost alone."""

from collections.abc import Sequence
from typing import Literal

from serpette.records import Candidate

Rule = Literal["cheapest", "best"]


def choose(
    candidates: Sequence[Candidate], baseline_top1: float, *, rule: Rule = "cheapest", max_loss: float = 1.0
) -> Candidate | None:
    """The winning candidate, or `None` where the unpruned model is the answer.

    "cheapest" takes the one that removes the most FLOPs among those whose validation top-1 is at most `max_loss` points
    below the baseline. "best" is the rule of Viespoli & Nanni (2026): the highest validation top-1, if it is not below
    the baseline, ties to the larger drop.
    """
    scored = [c for c in candidates if c.validation_top1 is not None and c.gflops_reduction is not None]
    if rule == "best":
        allowed = [c for c in scored if top1_of(c) >= baseline_top1]
        return max(allowed, key=lambda c: (top1_of(c), c.gflops_reduction), default=None)
    allowed = [c for c in scored if top1_of(c) >= baseline_top1 - max_loss]
    return max(allowed, key=lambda c: (c.gflops_reduction, top1_of(c)), default=None)


def top1_of(candidate: Candidate) -> float:
    """The validation top-1 of a candidate that has one, in percent."""
    assert candidate.validation_top1 is not None
    return candidate.validation_top1


def rule_in_words(rule: Rule, max_loss: float) -> str:
    """The rule as the report states it."""
    if rule == "best":
        return "the highest validation accuracy, not below the unpruned model's; ties to the larger drop"
    return f"the most FLOPs removed with at most {max_loss:g} points less validation accuracy than the unpruned model"
