"""Linear centred kernel alignment of the stream before and after every site: pure maths on tensors.

The minibatch estimator of Nguyen, Raghu & Kornblith (ICLR 2021), eq. 3, on the unbiased HSIC_1 of Song et al. (JMLR
2012), eq. 5: the terms of all batches are added, and CKA = xy / sqrt(xx yy) is taken at the end.

Shapes: L blocks, S = 2L + 1 states, n images of a batch, C channels.
"""

import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from serpette.redundancy.measures import fp64

FEWEST = 4  # images without which HSIC_1 does not exist


def cka_terms(means: Float32[Tensor, "S n C"]) -> Float64[Tensor, "3 3 L"]:
    """HSIC_1 of a batch of at least 4 images: (xy, xx, yy) per part and block; NaN where the vectors are not finite.

    Args:
        means: one vector per state and image.
    """
    x = fp64(means)
    x = x - x.mean(dim=1, keepdim=True)  # HSIC_1 does not change, its rounding does
    kernels = x @ x.transpose(1, 2)  # (S, n, n)
    kernels.diagonal(dim1=1, dim2=2).zero_()
    own = hsic(kernels, kernels)  # (S)
    outer, inner = kernels[::2], kernels[1::2]
    cross = torch.stack([hsic(outer[:-1], outer[1:]), hsic(outer[:-1], inner), hsic(inner, outer[1:])])
    before = torch.stack([own[:-2:2], own[:-2:2], own[1::2]])
    after = torch.stack([own[2::2], own[1::2], own[2::2]])
    return torch.stack([cross, before, after])


def hsic(k: Float64[Tensor, "sites n n"], l: Float64[Tensor, "sites n n"]) -> Float64[Tensor, " sites"]:  # noqa: E741
    """HSIC_1 of pairs of symmetric kernel matrices whose diagonals are 0 (Song et al. 2012, eq. 5)."""
    n = k.shape[-1]
    rows_k, rows_l = k.sum(dim=-1), l.sum(dim=-1)
    trace = (k * l).sum(dim=(-2, -1))
    sums = rows_k.sum(dim=-1) * rows_l.sum(dim=-1) / ((n - 1) * (n - 2))
    return (trace + sums - 2 / (n - 2) * (rows_k * rows_l).sum(dim=-1)) / (n * (n - 3))
