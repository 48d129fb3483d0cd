"""Streaming sums of a measurement: fp64, as small for a million images as for one, and mergeable.

Shapes: L blocks, B images of a batch. The axis of length 3 is the part, in the order of `PARTS`; the axis of length 2
tells the even images from the odd ones.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float64
from scipy.stats import kendalltau, t

from serpette.records import PARTS, Part, SiteScore, WindowScore
from serpette.redundancy.cka import FEWEST, cka_terms
from serpette.redundancy.measures import Terms

CONFIDENCE = 0.95


@dataclass
class Sums:
    """Everything that a profile is made of.

    1 - cos is summed rather than cos, so that what tells redundant sites apart keeps its digits.
    """

    images: int
    tokens: Float64[np.ndarray, "2 3 L"]  # usable tokens
    distance: Float64[np.ndarray, "2 3 L"]  # sum of 1 - cos over usable tokens
    angular: Float64[np.ndarray, "3 L"]
    relative_norm: Float64[np.ndarray, "3 L"]
    zero: Float64[np.ndarray, "3 L"]
    nonfinite: Float64[np.ndarray, "3 L"]
    rated: Float64[np.ndarray, "3 L"]  # images with a usable token
    image_distance: Float64[np.ndarray, "3 L"]  # sum over these images of their mean 1 - cos
    image_square: Float64[np.ndarray, "3 L"]  # and of its square
    step_products: Float64[np.ndarray, "L L"]  # see `StepTerms`
    step_tokens: float
    cka: Float64[np.ndarray, "3 3 L"]  # HSIC_1: xy, xx, yy

    @classmethod
    def empty(cls, depth: int) -> "Sums":
        """The sums over no image of a model of `depth` blocks."""
        halves, sites = np.zeros((2, 3, depth)), np.zeros((3, depth))  # shared: sums are replaced, never written to
        return cls(
            images=0,
            tokens=halves,
            distance=halves,
            angular=sites,
            relative_norm=sites,
            zero=sites,
            nonfinite=sites,
            rated=sites,
            image_distance=sites,
            image_square=sites,
            step_products=np.zeros((depth, depth)),
            step_tokens=0.0,
            cka=np.zeros((3, 3, depth)),
        )

    @property
    def depth(self) -> int:
        """The number of blocks, L."""
        return len(self.step_products)

    def merge(self, other: "Sums") -> None:
        """Add the sums over other images."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add(self, terms: Terms) -> None:
        """Add a batch of images; all of it or, where this raises, nothing."""
        site = {name: value.cpu().numpy() for name, value in terms.sites._asdict().items()}  # each (3, L, B)
        tokens, distance = site["tokens"], site["distance"]
        n = tokens.shape[-1]
        rated = tokens > 0
        means = np.divide(distance, tokens, out=np.zeros_like(distance), where=rated)
        odd = (self.images + np.arange(n)) % 2 == 1
        cka = cka_terms(terms.means).cpu().numpy() if n >= FEWEST else np.zeros_like(self.cka)
        batch = Sums(
            images=n,
            tokens=np.stack([tokens[..., ~odd].sum(-1), tokens[..., odd].sum(-1)]),
            distance=np.stack([distance[..., ~odd].sum(-1), distance[..., odd].sum(-1)]),
            angular=site["angular"].sum(-1),
            relative_norm=site["relative_norm"].sum(-1),
            zero=site["zero"].sum(-1),
            nonfinite=site["nonfinite"].sum(-1),
            rated=rated.sum(-1, dtype=np.float64),
            image_distance=means.sum(-1),
            image_square=np.square(means).sum(-1),
            step_products=terms.steps.products.cpu().numpy(),
            step_tokens=float(terms.steps.tokens),
            cka=np.where(np.isfinite(cka).all(axis=0), cka, 0),  # a site with NaN: this batch says nothing
        )
        self.merge(batch)

    def sites(self) -> tuple[SiteScore, ...]:
        """The scores of all blocks, then all attentions, then all MLPs."""
        return tuple(self._site(p, i, part) for p, part in enumerate(PARTS) for i in range(self.depth))

    def _site(self, p: int, block: int, part: Part) -> SiteScore:
        counts = {
            "zero_tokens": int(self.zero[p, block]),
            "nonfinite_tokens": int(self.nonfinite[p, block]),
            "cka": self._cka(p, block),
        }
        tokens = self.tokens[:, p, block].sum()
        if tokens == 0:
            nothing = dict.fromkeys(("cosine", "cosine_low", "cosine_high", "angular", "relative_norm"))
            return SiteScore(block=block, part=part, **nothing, **counts)
        cosine = 1 - float(self.distance[:, p, block].sum() / tokens)
        margin = self._margin(p, block)
        return SiteScore(
            block=block,
            part=part,
            cosine=cosine,
            cosine_low=None if margin is None else max(-1.0, cosine - margin),
            cosine_high=None if margin is None else min(1.0, cosine + margin),
            angular=float(self.angular[p, block] / tokens),
            relative_norm=float(self.relative_norm[p, block] / tokens),
            **counts,
        )

    def _margin(self, p: int, block: int) -> float | None:
        """Half the width of Student's interval, from the standard error of the means of the images."""
        n = self.rated[p, block]
        if n < 2:
            return None
        mean = self.image_distance[p, block] / n
        variance = max(0.0, self.image_square[p, block] / n - mean**2) * n / (n - 1)
        return float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * math.sqrt(variance / n)

    def _cka(self, p: int, block: int) -> float | None:
        xy, xx, yy = self.cka[:, p, block]
        return float(xy / math.sqrt(xx * yy)) if xx > 0 and yy > 0 else None

    def windows(self) -> tuple[WindowScore, ...]:
        """The scores of all runs of blocks, short ones first; tokens as in `StepTerms`."""
        depth = self.depth
        below = np.zeros((depth + 1, depth + 1))  # below[i, j]: sum of the products of blocks before i and before j
        below[1:, 1:] = self.step_products.cumsum(axis=0).cumsum(axis=1)
        return tuple(
            WindowScore(start=start, length=length, cosine=self._window(below, start, start + length))
            for length in range(1, depth + 1)
            for start in range(depth - length + 1)
        )

    def _window(self, below: Float64[np.ndarray, "M M"], i: int, j: int) -> float | None:
        if self.step_tokens == 0:
            return None
        squares = below[j, j] - below[i, j] - below[j, i] + below[i, i]  # the sum of |u_j - u_i|^2
        return 1 - max(0.0, float(squares)) / self.step_tokens / 2

    def stability(self) -> dict[Part, float | None]:
        """Kendall's tau between the rankings of the sites on the even and on the odd images, per part."""
        return {part: self._stability(p) for p, part in enumerate(PARTS)}

    def _stability(self, p: int) -> float | None:
        tokens = self.tokens[:, p]  # (2, L)
        measured = tokens.all(axis=0)
        if measured.sum() < 2:
            return None
        even, odd = self.distance[:, p, measured] / tokens[:, measured]
        tau = float(kendalltau(even, odd).statistic)
        return None if math.isnan(tau) else tau
