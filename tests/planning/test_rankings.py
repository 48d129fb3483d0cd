import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from profiles import profile

from serpette.planning.rankings import candidates, deepest, redundant, uniform, window
from serpette.records import Site

cosines = st.sampled_from([0.1, 0.5, 0.9, 0.99])  # few values, so that ties are common


def test_ties_break_deeper_first() -> None:
    scores = candidates(profile([0.9, 0.5, 0.9, 0.9]), "block", ())
    assert redundant(scores, 2) == (Site(3, "block"), Site(2, "block"))


def test_of_two_equal_sublayers_of_a_block_the_mlp_goes_first() -> None:
    assert redundant(candidates(profile([0.5] * 2), "joint", ()), 3) == (
        Site(1, "mlp"),
        Site(1, "attention"),
        Site(0, "mlp"),
    )


@given(st.lists(st.tuples(cosines, cosines), min_size=2, max_size=6), st.data())
def test_joint_takes_the_most_redundant_of_both_kinds(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    attention, mlp = zip(*pairs, strict=True)
    drop = data.draw(st.integers(1, 2 * len(pairs) - 1))
    found = redundant(candidates(profile(attention, attention, mlp), "joint", ()), drop)
    # Brute force: repeatedly take the best of the sublayers in stream order, the last of equals.
    stream = {(i, part): pair[part] for i, pair in enumerate(pairs) for part in (0, 1)}
    expected = []
    for _ in range(drop):
        best = max(stream.values())
        last = [key for key, value in stream.items() if value == best][-1]
        expected.append(Site(last[0], ("attention", "mlp")[last[1]]))
        del stream[last]
    assert list(found) == expected


def test_deepest_goes_backwards_through_the_stream() -> None:
    scores = candidates(profile([0.1, 0.9, 0.1]), "joint", ())
    assert deepest(scores, 3) == (Site(2, "mlp"), Site(2, "attention"), Site(1, "mlp"))


def test_random_is_uniform_and_looks_at_no_score() -> None:
    low, high = (candidates(profile(values), "block", ()) for values in ([0.1, 0.9, 0.3, 0.4], [0.9, 0.1, 0.5, 0.2]))
    drawn = Counter(site for seed in range(600) for site in uniform(low, 2, seed))
    assert all(240 < drawn[Site(i, "block")] < 360 for i in range(4))  # 300 each, 5 standard deviations
    assert all(uniform(low, 2, seed) == uniform(high, 2, seed) for seed in range(9))


@given(st.integers(2, 7), st.data())
def test_window_is_the_best_run_of_free_blocks(depth: int, data: st.DataObject) -> None:
    places = [(s, n) for n in range(1, depth + 1) for s in range(depth - n + 1)]
    values = {place: data.draw(st.one_of(cosines, st.none())) for place in places}
    free = data.draw(st.sets(st.integers(0, depth - 1)))
    length = data.draw(st.integers(1, depth - 1))
    found = [site.block for site in window(profile([0.5] * depth, windows=values), free, length)]
    best: list[int] = []
    highest = -2.0
    for start in range(depth - length + 1):
        run, value = list(range(start, start + length)), values[start, length]
        if value is not None and set(run) <= free and value >= highest:
            best, highest = run, value
    assert found == best


def test_planning_does_not_import_torch() -> None:
    code = "import sys, serpette.planning.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
