"""A model taken apart into stem, blocks and tail, so that plans can share the work that they have in common.

Shapes: B images, T tokens, C channels, D outputs, S pixels a side.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from serpette.models.base import Adapter, adapt, sharing_copy, stream_out

Output = Callable[[Adapter, Tensor], Tensor]


class Relay(nn.Module):
    """Stands in for all blocks: keeps what enters the first, or puts a stream in place of what leaves the last."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.stream: Tensor | None = None
        self.replacement: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Relay":
        return self  # an adapter may run a copy of the model; all copies talk to the same relay

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Keep the stream and the other arguments; return the stream, or its replacement."""
        self.stream, self.arguments = hidden_states, (args, kwargs)
        return hidden_states if self.replacement is None else self.replacement


class Trunk:
    """Runs the stem, single blocks and the tail of one model; the model itself is not changed.

    `output` says what comes out of the tail: `Adapter.features` or `Adapter.logits`.
    """

    def __init__(self, adapter: Adapter, output: Output) -> None:
        self._relay = Relay()
        self._skeleton = adapt(sharing_copy(adapter.model))
        self._skeleton.replace_blocks([self._relay])
        self._output = output

    def stem(self, images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "B T C"]:
        """The residual stream that enters the first block."""
        self._relay.replacement = None
        self._output(self._skeleton, images)
        stream = self._relay.stream
        assert stream is not None
        return stream

    def block(self, block: nn.Module, stream: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """One block, with the other arguments (masks, position embeddings) that the stem handed to the first block."""
        args, kwargs = self._relay.arguments
        return stream_out(block(stream, *args, **kwargs))

    def tail(self, stream: Float[Tensor, "B T C"], images: Float[Tensor, "B 3 S S"]) -> Float[Tensor, "B D"]:
        """What comes out for the stream that leaves the last block; a single image drives the skeleton."""
        self._relay.replacement = stream
        try:
            return self._output(self._skeleton, images[:1])
        finally:
            self._relay.replacement = None


def features(adapter: Adapter, images: Tensor) -> Tensor:
    """The input of the classifier."""
    return adapter.features(images)


def logits(adapter: Adapter, images: Tensor) -> Tensor:
    """The output of the model's own classifier."""
    return adapter.logits(images)
