"""From a stored image to the square of 8-bit RGB pixels that a model's preprocessing asks for.

The colour rules (orientation, alpha on white, 16 bit, float, first frame) are those of `serpette.data.rgb`. Resizing
and cropping are torchvision's `Resize` and `CenterCrop` on PIL images, to the pixel, so that a timm model sees what its
own evaluation transform would show it. Scaling and normalisation happen later, on the device.
"""

import os

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from serpette.data.bad_image import BadImage
from serpette.data.opening import Raw, open_image
from serpette.data.rgb import to_rgb
from serpette.records import Preprocessing

__all__ = ["BadImage", "decode", "to_rgb"]

_EXTREME = 32  # long side / short side from which the resized image would be too large to hold


def decode(
    source: Raw | Image.Image | str | os.PathLike[str], preprocessing: Preprocessing
) -> UInt8[np.ndarray, "S S 3"]:
    """Decode, convert to RGB, resize and crop one image.

    Args:
        source: encoded bytes, an array (H, W[, C]), a PIL image, or the path of a file.
        preprocessing: `image_size` is S, in pixels.

    Returns:
        Values 0..255.

    Raises:
        BadImage: the image is damaged, empty, no image at all, too large, or has values of an unknown range.
    """
    return np.asarray(_resized_and_cropped(to_rgb(open_image(source)), preprocessing))


def _resized_and_cropped(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    resize, interpolation = preprocessing.resize, InterpolationMode(preprocessing.interpolation)
    if preprocessing.resize_mode == "squash":
        resized = F.resize(image, [resize, resize], interpolation)
    elif max(image.size) > _EXTREME * min(image.size):
        resized = _middle_of_resized(image, preprocessing)
    else:
        resized = F.resize(image, [resize], interpolation)
    return _central(resized, preprocessing)


def _central(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    size = preprocessing.image_size
    if preprocessing.crop_margin == "floor" and min(image.size) >= size:
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return image.crop((left, top, left + size, top + size))
    cropped: Image.Image = F.center_crop(image, [size, size])
    return cropped


def _middle_of_resized(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """The central part of the resized image, computed without the rest: 3000 x 1 at 256 would be 768000 x 256.

    PIL's `box` may be fractional and the filters reach beyond it, so the pixels are those of the whole resized image,
    up to rounding and clipping between PIL's horizontal and vertical passes, whose order PIL chooses.
    """
    resize, size = preprocessing.resize, preprocessing.image_size
    long, short = max(image.size), min(image.size)
    new_long = int(resize * long / short)
    kept = min(size, new_long)
    start = round((new_long - kept) / 2.0)
    low, high = start * long / new_long, (start + kept) * long / new_long
    resample = Image.Resampling[preprocessing.interpolation.upper()]
    if image.width == long:
        return image.resize((kept, resize), resample, box=(low, 0, high, short))
    return image.resize((resize, kept), resample, box=(0, low, short, high))
