"""Things timed against each other in one run, so that a clock or a neighbour that drifts meets all alike."""

from collections.abc import Callable, Sequence
from time import perf_counter


def interleaved(runs: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds of every run in every round, after a round that is not timed; every second round goes backwards."""
    for run in runs:
        run()
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds):
        for i in range(len(runs))[:: -1 if turn % 2 else 1]:
            start = perf_counter()
            runs[i]()
            samples[i].append(perf_counter() - start)
    return samples
