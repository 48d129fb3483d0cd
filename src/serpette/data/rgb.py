"""Any image as 8-bit RGB, by rules that can be read here.

=====================================  ==============================================================
stored as                              becomes
=====================================  ==============================================================
EXIF orientation                       applied: the image is upright
RGBA, LA, PA, P/L/RGB with a           composited on white
transparent colour
16-bit grey (I;16*, I in 0..65535,     divided by 257, the full range of the type, whatever range the
uint16 arrays)                         values use; rounded
16-bit colour in files                 its high byte (PIL reads no more than that)
float (F, float arrays) in [0, 1]      times 255, rounded
other floats, integers beyond 16 bit   refused: nothing says which value is white
CMYK, YCbCr, LAB, HSV, P, L, 1         converted by PIL
several frames                         the first one
=====================================  ==============================================================
"""

from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, ImageOps

from serpette.data.bad_image import BadImage

_NUMERIC = ("I", "F")  # modes whose numbers PIL would clip to 0..255 instead of scaling them


def to_rgb(image: Image.Image) -> Image.Image:
    """An upright 8-bit RGB copy of `image` (see the rules of this module).

    Raises:
        BadImage: float values outside [0, 1], or integers outside 0..65535.
    """
    image = _upright(image)
    if image.mode.startswith(_NUMERIC):
        return Image.fromarray(_scale(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def from_array(array: Shaped[np.ndarray, "..."]) -> Image.Image:
    """An array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of grey, RGB or RGBA values as a PIL image.

    Raises:
        BadImage: another shape, or numbers that the rules of this module refuse.
    """
    shape = array.shape
    if array.ndim not in (2, 3) or 0 in shape or (array.ndim == 3 and shape[2] not in (1, 3, 4)):
        raise BadImage(f"an array of shape {shape}, expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)")
    if array.ndim == 3 and shape[2] == 1:
        array = array[:, :, 0]
    return Image.fromarray(_scale(array))


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # PIL raises many types on a damaged EXIF block, which then says nothing about the pixels
        return image


def _scale(values: Shaped[np.ndarray, "..."]) -> UInt8[np.ndarray, "..."]:
    kind = values.dtype.kind
    if values.dtype == np.uint8:
        return values
    if kind == "b":
        return np.where(values, np.uint8(255), np.uint8(0))
    if kind == "f":
        low, high = _range(values)
        if not (low >= 0 and high <= 1):  # NaN fails this as well
            raise BadImage(f"float values from {low:g} to {high:g}, expected 0 to 1")
        return np.asarray(np.rint(values * 255), np.uint8)
    if (kind, values.dtype.itemsize) in (("u", 2), ("i", 4)):  # of either byte order
        low, high = _range(values)
        if low < 0 or high > 65535:
            raise BadImage(f"integer values from {low} to {high}, expected 8 or 16 bits (0 to 65535)")
        return np.asarray((values.astype(np.uint32) + 128) // 257, np.uint8)
    raise BadImage(f"values of type {values.dtype}, expected uint8, uint16 or float in [0, 1]")


def _range(values: Shaped[np.ndarray, "..."]) -> tuple[Any, Any]:
    return values.min(), values.max()
