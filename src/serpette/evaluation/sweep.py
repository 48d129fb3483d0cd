"""Many plans in one pass over the images: plans that begin alike share their first blocks.

Plans are sequences of blocks, whole or half. Put in a trie and walked depth first, every edge runs once per batch, and
memory is one stream per level, whatever the number of plans.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from serpette.evaluation.trunk import Output, Trunk
from serpette.models.base import Adapter
from serpette.records import Plan
from serpette.surgery.prune import check_dense, kept_blocks, remaining_blocks

Edge = tuple[int, str]  # original block, and "whole" or the branch that is left


class Sweep:
    """The outputs of several plans of one dense model.

    Raises:
        PlanError: a plan does not fit the model, or the model has been pruned before.
    """

    def __init__(self, adapter: Adapter, plans: Sequence[Plan], output: Output) -> None:
        check_dense(adapter)
        depth = len(adapter.blocks)
        for plan in plans:
            plan.check(depth)
        self._trunk = Trunk(adapter, output)
        self._modules: dict[Edge, nn.Module] = {}
        self._paths = [self._path(adapter, plan) for plan in plans]
        self.cost = trie_cost(adapter, self._paths, self._modules)

    def _path(self, adapter: Adapter, plan: Plan) -> tuple[Edge, ...]:
        edges = []
        for i, block in zip(kept_blocks(len(adapter.blocks), plan), remaining_blocks(adapter, plan), strict=True):
            left = "mlp" if i in plan.drop_attention else "attention" if i in plan.drop_mlp else "whole"
            self._modules.setdefault((i, left), block)
            edges.append((i, left))
        return tuple(edges)

    def run(self, images: Tensor) -> list[Tensor]:
        """The output of every plan for one batch of images (B, 3, S, S): tensors (B, D), in the order of the plans."""
        outputs: dict[int, Tensor] = {}

        def walk(stream: Tensor, members: list[int], level: int) -> None:
            branches: dict[Edge, list[int]] = {}
            ended = []
            for member in members:
                path = self._paths[member]
                if len(path) == level:
                    ended.append(member)
                else:
                    branches.setdefault(path[level], []).append(member)
            if ended:
                output = self._trunk.tail(stream, images)
                outputs.update(dict.fromkeys(ended, output))
            for edge, group in branches.items():
                walk(self._trunk.block(self._modules[edge], stream), group, level + 1)

        walk(self._trunk.stem(images), list(range(len(self._paths))), 0)
        return [outputs[i] for i in range(len(self._paths))]


class SweepCost(NamedTuple):
    """The work of a sweep in passes of the dense model: shared, and if every plan ran on its own."""

    shared: float
    separate: float


def trie_cost(adapter: Adapter, paths: Sequence[tuple[Edge, ...]], modules: dict[Edge, nn.Module]) -> SweepCost:
    """Cost of the trie of `paths`; a block weighs as much as it has parameters, which is nearly its FLOPs per token."""
    weight = {edge: sum(p.numel() for p in module.parameters()) for edge, module in modules.items()}
    dense = sum(p.numel() for block in adapter.blocks for p in block.parameters())
    prefixes = {path[: level + 1] for path in paths for level in range(len(path))}
    return SweepCost(
        shared=sum(weight[prefix[-1]] for prefix in prefixes) / dense,
        separate=sum(weight[edge] for path in paths for edge in path) / dense,
    )
