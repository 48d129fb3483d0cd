"""How much the residual stream turns between two points of a model: pure maths on tensors.

Every token vector is scaled to length 1 once. What follows needs differences of unit vectors only, which lose no digits
however close two directions are and however large the activations. With the chord c = |u - v|,

    cos          = 1 - c^2 / 2                     never above 1
    arccos(cos)  = 2 arcsin(c / 2)
    |b - a|^2    = (|a| - |b|)^2 + |a| |b| c^2     for a = |a| u, b = |b| v

and the cosine over a window of blocks follows from the inner products of the blocks' own differences, since these add
up. Scores as in He et al., "What Matters in Transformers?" (TMLR 2026). Vectors are fp32, scalars fp64.

Shapes: L blocks, S = 2L + 1 states of the stream (before block 0, between its branches, before block 1, ..., after the
last), B images, T tokens, C channels. The axis of length 3 is the part, in the order of `PARTS`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

CHUNK_BYTES = {"cpu": 2**22, "cuda": 2**28}  # of fp32 states at a time: what a processor's cache holds, or a GPU likes


class SiteTerms(NamedTuple):
    """What some images say about every site, per image.

    `distance`, `angular` and `relative_norm` are sums over the usable tokens of 1 - cos, arccos(cos)/pi and
    |after - before| / |before|. `tokens`, `zero` and `nonfinite` count the tokens that are usable, that have norm 0 on
    either side, and that have NaN or infinity on either side.
    """

    tokens: Float64[Tensor, "3 L B"]
    distance: Float64[Tensor, "3 L B"]
    angular: Float64[Tensor, "3 L B"]
    relative_norm: Float64[Tensor, "3 L B"]
    zero: Float64[Tensor, "3 L B"]
    nonfinite: Float64[Tensor, "3 L B"]


class StepTerms(NamedTuple):
    """What some images say about windows of blocks.

    `products` holds the inner products of the blocks' unit differences, summed over the `tokens` tokens that are usable
    before and after every block. Summed over a window's rows and columns it gives the sum of c^2 over that window.
    """

    products: Float64[Tensor, "L L"]
    tokens: Float64[Tensor, ""]


class Terms(NamedTuple):
    """What a batch adds to the sums; `means` are the states averaged over tokens, per image."""

    sites: SiteTerms
    steps: StepTerms
    means: Float32[Tensor, "S B C"]


def compare(states: Sequence[Float[Tensor, "B T C"]]) -> Terms:
    """Compare the states of the stream, a few images at a time, so that the extra memory stays small."""
    per_image = 4 * len(states) * states[0][0].numel()
    size = max(1, CHUNK_BYTES.get(states[0].device.type, CHUNK_BYTES["cpu"]) // per_image)
    chunks = zip(*(torch.split(state, size) for state in states), strict=True)
    sites, steps, means = zip(*(compare_chunk(torch.stack(chunk).float()) for chunk in chunks), strict=True)
    return Terms(
        SiteTerms(*(torch.cat(term, dim=-1) for term in zip(*sites, strict=True))),
        StepTerms(*(torch.stack(term).sum(dim=0) for term in zip(*steps, strict=True))),
        torch.cat(means, dim=1),
    )


def compare_chunk(states: Float32[Tensor, "S B T C"]) -> Terms:
    """Compare the states of a few images; `states` is used up."""
    means = states.mean(dim=2)
    norms = torch.linalg.vector_norm(states, dim=-1)  # (S, B, T)
    alive = (norms > 0) & norms.isfinite()
    units = states.mul_(norms.reciprocal().unsqueeze(-1))
    if not alive.all():
        units.masked_fill_(~alive.unsqueeze(-1), 0)
    halves = torch.linalg.vector_norm(units[1:] - units[:-1], dim=-1)  # (2L, B, T)
    turns = units[2::2] - units[:-2:2]  # (L, B, T, C)
    chords = torch.stack([torch.linalg.vector_norm(turns, dim=-1), halves[::2], halves[1::2]])  # (3, L, B, T)
    usable = alive[::2].all(dim=0)  # (B, T)
    if not usable.all():
        turns.masked_fill_(~usable.unsqueeze(-1), 0)
    flat = turns.flatten(start_dim=1)  # (L, B T C)
    return Terms(site_terms(norms, chords), StepTerms(fp64(flat @ flat.T), fp64(usable.sum())), means)


def site_terms(norms: Float32[Tensor, "S B T"], chords: Float32[Tensor, "3 L B T"]) -> SiteTerms:
    """The scores of every site, from the norms of all states and the chords of all sites."""
    norms, chords = fp64(norms), fp64(chords)
    outer, inner = norms[::2], norms[1::2]  # (L + 1, B, T), (L, B, T)
    before = torch.stack([outer[:-1], outer[:-1], inner])  # (3, L, B, T)
    after = torch.stack([outer[1:], inner, outer[1:]])
    finite = before.isfinite() & after.isfinite()
    zero = finite & ((before == 0) | (after == 0))
    usable = finite & ~zero

    def total(values: Tensor) -> Tensor:
        return values.where(usable, 0).sum(dim=-1)  # (3, L, B)

    return SiteTerms(
        tokens=usable.double().sum(dim=-1),
        distance=total(chords.square().clamp(max=4) / 2),
        angular=total(angle(chords)),
        relative_norm=total(relative_norm(before, after, chords)),
        zero=zero.double().sum(dim=-1),
        nonfinite=(~finite).double().sum(dim=-1),
    )


def angle(chord: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    """The angular distance arccos(cos) / pi of two unit vectors, in [0, 1], from |u - v|."""
    return 2 * torch.asin((chord / 2).clamp(max=1)) / torch.pi


def relative_norm(
    before: Float64[Tensor, "..."], after: Float64[Tensor, "..."], chord: Float64[Tensor, "..."]
) -> Float64[Tensor, "..."]:
    """|b - a| / |a| from |a|, |b| and the chord between their directions."""
    return ((before - after).square() + before * after * chord.square()).sqrt() / before


def fp64(tensor: Tensor) -> Tensor:
    """The tensor in fp64, on the CPU where its device knows no fp64."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()
