"""How long work says how far it is: callbacks that cost nothing where nobody listens."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (images done, images in all)."""

Phase = Callable[[str], Progress]
"""Called with the name of a part of the work; returns the callback for that part."""


def unseen(_name: str) -> Progress:
    """The phase that nobody watches."""
    return lambda _done, _total: None
