"""Work done ahead by threads: results in order, never more than a fixed number under way, nothing lost on a stop."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_MOST_WORKERS = 16  # more threads than this only wait for each other


def default_workers() -> int:
    """One thread for each processor that this process may use, up to 16."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_WORKERS)


class Prefetch(Generic[T, R]):
    """Iterates over `function(item)` for every item, at most `ahead` items ahead of the consumer.

    Close it when done, whether or not it is exhausted. An exception of `function` reaches the consumer at its item.
    """

    def __init__(self, function: Callable[[T], R], items: Iterable[T], *, workers: int, ahead: int) -> None:
        self._function = function
        self._items = iter(items)
        self._ahead = max(ahead, workers)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="serpette-decode")
        self._futures: deque[Future[R]] = deque()

    def __iter__(self) -> "Prefetch[T, R]":
        return self

    def __next__(self) -> R:
        while len(self._futures) < self._ahead:
            try:
                item = next(self._items)
            except StopIteration:
                break
            self._futures.append(self._pool.submit(self._function, item))
        if not self._futures:
            raise StopIteration
        result = self._futures[0].result()
        self._futures.popleft()
        return result

    def close(self) -> list[R]:
        """Stop the threads and return the results, in order, that were under way and not yet consumed."""
        for future in reversed(self._futures):  # threads start the oldest first, so what is not cancelled is a prefix
            future.cancel()
        self._pool.shutdown(wait=True)
        finished = []
        for future in self._futures:
            if future.cancelled() or future.exception() is not None:
                break
            finished.append(future.result())
        self._futures.clear()
        return finished
