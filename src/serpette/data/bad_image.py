"""The exception for one image that cannot be used, while the others can."""

from serpette.errors import DataError


class BadImage(DataError):  # noqa: N818 - it names the image, and is caught more often than seen
    """One image cannot be used; `reason` says why, in a few words and without the path.

    Whoever knows the path decides what happens: skip it and list it, or stop.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"this image cannot be used: {reason}; replace or remove it.")
        self.reason = reason
