"""Which attention kernels a model runs, watched rather than read from its settings."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from serpette.errors import ModelError
from serpette.models.base import unwrapped


def attention_kernels(model: nn.Module, images: Float[Tensor, "B 3 S S"]) -> frozenset[str]:
    """The kernels that one forward pass calls for attention, such as `flash_attention_for_cpu`.

    `unfused` stands for attention that runs as matrix products and a softmax; a model without attention has no kernels.
    """
    watch = _Watch()
    with torch.no_grad(), watch:
        unwrapped(model)(images)
    return frozenset(watch.kernels)


def require_same_kernels(kernels: Sequence[frozenset[str]]) -> None:
    """Refuse to compare models that run different attention kernels: the ratio would measure the kernels.

    A model that has lost some or all of its attention may run fewer of them.

    Raises:
        ModelError: each of two models runs a kernel that the other does not.
    """
    for first in kernels:
        for second in kernels:
            if not (first <= second or second <= first):
                raise ModelError(
                    f"one model runs {described(first)} attention and the other {described(second)}, so a speedup "
                    "would not be that of pruning; expected one kernel in both: set timm's `fused_attn` or "
                    "transformers' `attn_implementation` alike."
                )


def described(kernels: frozenset[str]) -> str:
    """The kernels in one word, `no` where there are none."""
    return "+".join(sorted(kernels)) or "no"


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the attention kernels among the operators that run inside it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload):  # in inference mode operators arrive whole: look inside them first
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name = str(func).removeprefix("aten.").partition(".")[0]
        if "_attention" in name or "flash_attn" in name:
            self.kernels.add(name.removeprefix("_scaled_dot_product_"))
        elif name in ("_softmax", "_safe_softmax"):
            self.kernels.add("unfused")
        return func(*args, **kwargs)
