from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import profile

from serpette.errors import PlanError, RecordError
from serpette.planning.plan import check_words, plan
from serpette.records import METHODS, Method

WINDOWS = {(s, n): 0.5 + 0.1 * s for n in range(1, 5) for s in range(5 - n)}
FOUR = profile([0.9, 0.8, 0.95, 0.7], [0.99, 0.6, 0.98, 0.5], [0.4, 0.97, 0.96, 0.3], WINDOWS)


@pytest.mark.parametrize(
    ("method", "drop", "blocks", "attention", "mlp"),
    [
        ("block", 2, (0, 2), (), ()),
        ("attention", 2, (), (0, 2), ()),
        ("mlp", 3, (0,), (), (0,)),
        ("joint", 4, (2,), (0,), (1,)),
        ("contiguous", 2, (2, 3), (), ()),
        ("deepest", 2, (2, 3), (), ()),
    ],
)
def test_what_each_method_removes(
    method: Method, drop: int, blocks: tuple[int, ...], attention: tuple[int, ...], mlp: tuple[int, ...]
) -> None:
    made = plan(FOUR, method=method, drop=drop)
    if method == "mlp":
        blocks, mlp = (), (0, 1, 2)
    assert (made.drop_blocks, made.drop_attention, made.drop_mlp) == (blocks, attention, mlp)
    assert (made.method, made.drop, made.depth, made.seed) == (method, drop, 4, None)
    assert (made.model, made.profile) == (FOUR.model.name, FOUR.content_hash)


def test_both_sublayers_of_a_block_are_a_block_drop() -> None:
    made = plan(FOUR, method="deepest", drop=3, unit="joint")
    assert (made.drop_blocks, made.drop_attention, made.drop_mlp) == ((3,), (), (2,))


def test_random_follows_its_seed() -> None:
    plans = [plan(FOUR, method="random", drop=2, seed=seed) for seed in range(20)]
    assert [p.seed for p in plans] == list(range(20))
    assert len({p.drop_blocks for p in plans}) > 3
    assert plans[7] == plan(FOUR, method="random", drop=2, seed=7)


@given(method=st.sampled_from(METHODS), data=st.data())
def test_every_plan_fits_its_model_and_leaves_the_protected(method: Method, data: st.DataObject) -> None:
    depth = data.draw(st.integers(2, 6))
    values = [data.draw(st.lists(st.floats(-1, 1, allow_nan=False), min_size=depth, max_size=depth)) for _ in range(3)]
    windows = {(s, n): data.draw(st.floats(-1, 1)) for n in range(1, depth + 1) for s in range(depth - n + 1)}
    protect = data.draw(st.lists(st.integers(0, depth - 1), max_size=depth))
    nonfinite = data.draw(st.sets(st.integers(0, depth - 1), max_size=1))
    unit = data.draw(st.sampled_from(["block", "attention", "mlp", "joint"]))
    drop = data.draw(st.integers(-1, 2 * depth + 1))
    given_profile = profile(*values, windows, tuple(nonfinite))
    try:
        made = plan(given_profile, method=method, drop=drop, protect=protect, unit=unit)
    except PlanError:
        return  # which ones are refused is tested below
    made.check(depth)
    assert not {site.block for site in made.sites} & (set(protect) | nonfinite)
    assert 2 * len(made.drop_blocks) + len(made.drop_attention) + len(made.drop_mlp) in (drop, 2 * drop)


@pytest.mark.parametrize(
    ("method", "drop", "protect", "message"),
    [
        ("block", 0, (), r"Cannot drop 0 blocks; expected 1 to 3"),
        ("block", 4, (), r"Dropping 4 blocks would leave none: this model has 4. Ask for 1 to 3"),
        ("mlp", 4, (), r"Dropping 4 MLPs would leave none"),
        ("joint", 8, (), r"Dropping 8 sublayers would leave none: this model has 8"),
        ("joint", 7, (), r"Plan removes the .* of all 4 blocks"),
        ("attention", 3, (0, 1), r"only 2 of 4 are free \(protected: block 0, block 1\). Ask for at most 2"),
        ("contiguous", 2, (1, 2), r"only 2|No run of 2 consecutive blocks is free \(protected: block 1, block 2\)"),
        ("block", 1, (4,), r"Cannot protect block 4: this model has 4 blocks \(0-3\)"),
    ],
)
def test_refuses_what_cannot_be_met(method: Method, drop: int, protect: tuple[int, ...], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(FOUR, method=method, drop=drop, protect=protect)


def test_sites_with_nan_are_never_dropped_and_are_named() -> None:
    broken = profile([0.9, 0.99, None, 0.5], windows=WINDOWS, nonfinite=(1,))
    assert plan(broken, method="block", drop=1).drop_blocks == (0,)
    assert plan(broken, method="deepest", drop=2).drop_blocks == (0, 3)
    with pytest.raises(PlanError, match=r"only 2 of 4 .*not measured: block 1, block 2"):
        plan(broken, method="block", drop=3)
    with pytest.raises(PlanError, match="No run of 2"):
        plan(broken, method="contiguous", drop=2)


def test_refuses_unknown_words() -> None:
    with pytest.raises(PlanError, match="unknown method 'manual'; expected one of block"):
        plan(FOUR, method="manual", drop=1)
    with pytest.raises(PlanError, match="unknown unit 'layer'"):
        check_words("random", "layer")


def test_reads_a_file(tmp_path: Path) -> None:
    path = FOUR.save(tmp_path / "profile.json")
    assert plan(path, method="block", drop=2) == plan(FOUR, method="block", drop=2)
    with pytest.raises(RecordError, match="expected a profile"):
        plan(tmp_path / "none.json", method="block", drop=2)
