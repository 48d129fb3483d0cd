"""The rule, against brute force."""

from hypothesis import given
from hypothesis import strategies as st

from serpette.records import Candidate, Plan
from serpette.selection.candidates import default_drops
from serpette.selection.choose import choose

scores = st.one_of(st.none(), st.integers(0, 400).map(lambda i: i / 4))
reductions = st.integers(1, 60).map(float)


def candidate(top1: float | None, reduction: float) -> Candidate:
    return Candidate(
        method="block",
        drop=1,
        plan=Plan(drop_blocks=(0,)),
        validation_top1=top1,
        gflops=1.0,
        gflops_reduction=reduction,
    )


candidates = st.lists(st.builds(candidate, scores, reductions), max_size=8)


@given(candidates, st.integers(0, 400).map(lambda i: i / 4), st.sampled_from([0.0, 1.0, 5.0]))
def test_cheapest_loses_no_more_than_allowed_and_nothing_allowed_is_cheaper(tried, baseline, max_loss) -> None:
    chosen = choose(tried, baseline, rule="cheapest", max_loss=max_loss)
    allowed = [c for c in tried if c.validation_top1 is not None and c.validation_top1 >= baseline - max_loss]
    assert (chosen is None) == (not allowed)
    if chosen:
        assert chosen in allowed
        assert all(c.gflops_reduction <= chosen.gflops_reduction for c in allowed)
        ties = [c for c in allowed if c.gflops_reduction == chosen.gflops_reduction]
        assert chosen.validation_top1 == max(c.validation_top1 for c in ties)


@given(candidates, st.integers(0, 400).map(lambda i: i / 4))
def test_best_is_the_highest_accuracy_and_never_below_the_baseline(tried, baseline) -> None:
    chosen = choose(tried, baseline, rule="best")
    measured = [c for c in tried if c.validation_top1 is not None]
    highest = max((c.validation_top1 for c in measured), default=None)
    if highest is None or highest < baseline:
        assert chosen is None
    else:
        assert chosen is not None
        assert chosen.validation_top1 == highest
        ties = [c.gflops_reduction for c in measured if c.validation_top1 == highest]
        assert chosen.gflops_reduction == max(ties)


def test_drop_counts_by_default() -> None:
    assert default_drops(12) == (1, 2, 3, 4, 6)
    assert default_drops(2) == (1,)
    assert default_drops(24) == (4, 8, 12, 16, 20)
