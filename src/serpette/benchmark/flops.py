"""The work of one forward pass, counted from shapes alone.

The model runs on the meta device, where tensors have shapes but no data. So the count costs neither memory nor time,
and does not depend on the device, the precision or the attention kernel. Attention is sent down the `math` path, where
its score and value products are plain matrix products: the fused CPU kernel would be counted as nothing.

Shapes: S pixels a side.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from serpette.errors import ModelError
from serpette.models.base import unwrapped
from serpette.models.runtime import placement


def count_flops(model: nn.Module, image_size: int) -> int:
    """Floating-point operations of one forward pass over one 3 x S x S image, two per multiply-accumulate.

    Counted are linear layers, convolutions and the attention products, with the formulas of `torch.utils.flop_counter`;
    softmax, normalisation and other elementwise work is not. The model may be on any device, `meta` included, and stays
    as it is.

    Raises:
        ModelError: the model cannot run on shapes alone, for instance at this image size.
    """
    twin = meta_twin(unwrapped(model)).eval()
    _, dtype = placement(twin)
    counter = FlopCounterMode(display=False)
    # Inference mode would hide linear layers from the counter inside composite operators.
    with torch.inference_mode(False), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        try:
            twin(torch.empty(1, 3, image_size, image_size, device="meta", dtype=dtype))
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ModelError(
                f"cannot count the FLOPs of {type(twin).__name__} at {image_size} pixels ({_first_line(error)}); "
                "expected a forward pass that depends on shapes only, at a size that the model accepts."
            ) from error
    return int(counter.get_total_flops())


def meta_twin(model: nn.Module) -> nn.Module:
    """A copy of the module tree whose tensors have the shapes of the model's, but no data; nothing large is copied."""
    attributes = (value for module in model.modules() for value in vars(module).values())
    plain = [value for value in attributes if isinstance(value, Tensor)]
    with torch.inference_mode(False):
        memo = {id(tensor): _meta(tensor) for tensor in (*model.parameters(), *model.buffers(), *plain)}
        return copy.deepcopy(model, memo)


def _meta(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
