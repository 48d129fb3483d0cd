"""One pass over calibration images, with objects that are already open; `measure` opens them.

Shapes: B images, T tokens, C channels, S pixels a side.
"""

from typing import get_args

from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from serpette.data.pixels import Pixels
from serpette.errors import ModelError
from serpette.models.base import Adapter, inference
from serpette.models.reference import model_ref
from serpette.models.runtime import for_each_batch, placement, provenance, to_input
from serpette.progress import Progress
from serpette.records import Profile, Tokens
from serpette.redundancy.measures import compare
from serpette.redundancy.sums import Sums
from serpette.redundancy.tap import Tap


def measure_pixels(
    adapter: Adapter,
    pixels: Pixels,
    *,
    tokens: Tokens = "all",
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Sums:
    """Measure a dense model on all images of `pixels` in one forward pass.

    A batch that does not fit into memory leaves no trace and is tried again in halves. Nothing grows with the number of
    images.

    Raises:
        ModelError: the model has no such tokens, or its blocks do not run one after the other.
        PlanError: the model is pruned already.
    """
    check_tokens(adapter, tokens)
    device, dtype = placement(adapter.model)
    sums = Sums.empty(len(adapter.blocks))
    with inference(adapter.model), Tap(adapter) as tap:

        def step(images: UInt8[Tensor, "B 3 S S"], _: Int64[Tensor, " B"]) -> None:
            states = tap.run(to_input(images, adapter.preprocessing, device, dtype))
            sums.add(compare([select_tokens(adapter, state, tokens) for state in states]))
            if progress is not None:
                progress(sums.images, len(pixels))

        for_each_batch(pixels.batches(batch_size), step)
    return sums


def profile_pixels(
    adapter: Adapter,
    pixels: Pixels,
    *,
    tokens: Tokens = "all",
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> Profile:
    """Measure as `measure_pixels` does; the result as a record. `seed` is the one that drew the images.

    Raises:
        ModelError: the model has no such tokens, or its blocks do not run one after the other.
        PlanError: the model is pruned already.
    """
    sums = measure_pixels(adapter, pixels, tokens=tokens, batch_size=batch_size, progress=progress)
    return Profile(
        model=model_ref(adapter),
        data=pixels.ref(),
        provenance=provenance(adapter.model, seed),
        tokens=tokens,
        images=sums.images,
        depth=sums.depth,
        sites=sums.sites(),
        windows=sums.windows(),
        stability=sums.stability(),
    )


def check_tokens(adapter: Adapter, tokens: str) -> None:
    """Refuse a choice of tokens that the model does not have.

    Raises:
        ModelError: not a choice, or the model has no class token.
    """
    choices = get_args(Tokens)
    if tokens not in choices:
        raise ModelError(f"unknown tokens {tokens!r}; expected one of {', '.join(choices)}.")
    if tokens == "cls" and adapter.num_prefix_tokens == 0:
        raise ModelError(f"{adapter.architecture} has no class token; expected tokens all, patch or pooled.")


def select_tokens(adapter: Adapter, stream: Float[Tensor, "B T C"], tokens: Tokens) -> Float[Tensor, "B t c"]:
    """The tokens to compare: all, the first, those after the prefix, or one vector pooled as for the classifier."""
    match tokens:
        case "all":
            return stream
        case "cls":
            return stream[:, :1]
        case "patch":
            return stream[:, adapter.num_prefix_tokens :]
        case "pooled":
            return adapter.pool(stream).unsqueeze(1)
