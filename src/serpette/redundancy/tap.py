"""The residual stream of a model, read where it flows: hooks that look on and change nothing.

The stream between the branches of a block is the input of the first module of its second branch. It is never
recomputed from a branch's output, which would miss LayerScale, DropPath and post-norms.

Shapes: B images, T tokens, C channels, S pixels a side.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from serpette.errors import ModelError, PlanError
from serpette.models.base import Adapter, stream_in, stream_out


class Tap:
    """Reads the stream of a dense model of L blocks; a context manager, so that all hooks come off again.

    Raises:
        PlanError: a block lacks a branch: the model is pruned already.
        ModelError: one module object serves at two places.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._points = tap_points(adapter)
        self._handles: list[RemovableHandle] = []
        self._seen: dict[str, Tensor] = {}

    def __enter__(self) -> "Tap":
        for name, module in self._points.items():
            self._handles.append(module.register_forward_pre_hook(self._entering(name), with_kwargs=True))
        for i, block in enumerate(self._adapter.blocks):
            self._handles.append(block.register_forward_hook(self._leaving(f"end of block {i}"), with_kwargs=True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._seen.clear()

    def run(self, images: Float[Tensor, "B 3 S S"]) -> tuple[Float[Tensor, "B T C"], ...]:
        """One forward pass.

        Returns:
            The 2L + 1 states of the stream: entering block 0, entering its MLP branch, entering block 1, ..., leaving
            the last block.

        Raises:
            ModelError: a block did not run exactly once, or something changes the stream between two blocks.
        """
        try:
            self._adapter.features(images)
            return self._states()
        finally:
            self._seen.clear()  # the states of a batch live no longer than the batch

    def _states(self) -> tuple[Tensor, ...]:
        depth = len(self._adapter.blocks)
        expected = (*self._points, *(f"end of block {i}" for i in range(depth)))
        if missing := [name for name in expected if name not in self._seen]:
            raise ModelError(f"The {missing[0]} was not reached in a forward pass; expected every block to run once.")
        for i in range(1, depth):
            if not same(self._seen[f"end of block {i - 1}"], self._seen[f"block {i}"]):
                raise ModelError(
                    f"The stream changes between block {i - 1} and block {i}; expected blocks that follow each other."
                )
        return (*(self._seen[name] for name in self._points), self._seen[f"end of block {depth - 1}"])

    def _entering(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def look(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._note(name, stream_in(args, kwargs))

        return look

    def _leaving(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
        def look(_: nn.Module, __: tuple[Any, ...], ___: dict[str, Any], output: Any) -> None:
            self._note(name, stream_out(output))

        return look

    def _note(self, name: str, stream: Tensor) -> None:
        if name in self._seen:
            raise ModelError(f"The {name} was reached twice in one forward pass; expected every block to run once.")
        self._seen[name] = stream


def tap_points(adapter: Adapter) -> dict[str, nn.Module]:
    """The modules whose input is the stream, by the name of the place, in the order of the stream.

    Raises:
        PlanError: a block lacks a branch: the model is pruned already.
        ModelError: one module object serves at two places.
    """
    points: dict[str, nn.Module] = {}
    for i, block in enumerate(adapter.blocks):
        branches = adapter.branches(block)
        for part, children in branches._asdict().items():
            if not children:
                raise PlanError(f"Block {i} has no {part}: this model is pruned already. Measure the dense model.")
        points[f"block {i}"] = block
        points[f"mlp of block {i}"] = block.get_submodule(branches.mlp[0])
    names: dict[int, str] = {}
    for name, module in points.items():
        first = names.setdefault(id(module), name)
        if first != name:
            raise ModelError(
                f"One module object serves as {first} and as {name}, so they cannot be told apart; "
                "expected a module for each. Copy the module (copy.deepcopy)."
            )
    return points


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same stream; mostly they are one tensor, and nothing is compared."""
    return a is b or (a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b)))
