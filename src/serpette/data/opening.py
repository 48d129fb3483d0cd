"""From stored bytes to a PIL image with every pixel decoded, so that a damaged file shows here and not later."""

import io
import os
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from PIL import Image, UnidentifiedImageError

from serpette.data.bad_image import BadImage
from serpette.data.rgb import from_array

Raw = bytes | Shaped[np.ndarray, "..."]
"""An image as it is stored: the bytes of a file, or an array of values."""

_NOT_DECODED_HERE = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}  # stubs, and EPS, which runs Ghostscript
_TOO_LARGE = "it has more pixels than PIL's limit against decompression bombs"


@cache
def image_formats() -> tuple[str, ...]:
    """The names of the formats that are decoded, e.g. "PNG", in the order in which PIL tries them."""
    Image.preinit()
    Image.init()
    return tuple(name for name in Image.ID if name in Image.OPEN and name not in _NOT_DECODED_HERE)


@cache
def image_extensions() -> frozenset[str]:
    """The file extensions that are taken for images, in lower case and with the dot."""
    formats = set(image_formats())
    return frozenset(extension for extension, name in Image.registered_extensions().items() if name in formats)


def open_image(source: Raw | Image.Image | str | os.PathLike[str]) -> Image.Image:
    """Decode all of an image: encoded bytes, an array of values, a path, or a PIL image that may not be loaded yet.

    Returns:
        The first frame, in the mode and size that it is stored in.

    Raises:
        BadImage: it cannot be read or decoded to the last pixel, or it is larger than PIL's decompression-bomb limit.
    """
    if isinstance(source, np.ndarray):
        return from_array(source)
    if isinstance(source, Image.Image):
        return _loaded(source)
    if isinstance(source, bytes):
        return _loaded(_identified(source))
    return _loaded(_identified(read_file(Path(source))))


def read_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        BadImage: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadImage(f"the file cannot be read ({error.strerror})") from error
    except ValueError as error:  # a null byte in the name
        raise BadImage("its name is not that of a file") from error


def _identified(data: bytes) -> Image.Image:
    if not data:
        raise BadImage("the file is empty")
    try:
        return Image.open(io.BytesIO(data), formats=image_formats())
    except UnidentifiedImageError:
        raise BadImage(_what_it_is_instead(data)) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadImage(_TOO_LARGE) from None
    except MemoryError:
        raise
    except Exception as error:  # the plugins of PIL raise many types on damaged headers
        raise BadImage(_damage(error)) from error


def _loaded(image: Image.Image) -> Image.Image:
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise BadImage(_TOO_LARGE)
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # likewise on damaged pixels
        raise BadImage(_damage(error)) from error
    if 0 in image.size:
        raise BadImage("the image has no pixels")
    return image


def _damage(error: Exception) -> str:
    detail = " ".join(str(error).split()) or type(error).__name__
    return f"it is damaged ({detail})"


def _what_it_is_instead(data: bytes) -> str:
    start = data[:256].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer (git lfs pull fetches the image)"
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    return "it is not an image that PIL can identify"
