import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image
from timm.data import create_transform
from torchvision import transforms

from serpette.data.decode import BadImage, decode, to_rgb
from serpette.records import Preprocessing

INTERPOLATIONS = ["nearest", "bilinear", "bicubic", "lanczos"]


def settings(size: int = 16, resize: int = 18, mode: str = "shortest", interpolation: str = "bicubic") -> Preprocessing:
    return Preprocessing(
        image_size=size,
        resize=resize,
        resize_mode=mode,
        interpolation=interpolation,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
    )


def noise(width: int, height: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(width * height).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def only_value(source: object) -> int:
    """The value of all pixels of the decoded image."""
    values = np.unique(decode(source, settings()))
    assert len(values) == 1
    return int(values[0])


# Geometry


@pytest.mark.parametrize("size", [(40, 30), (30, 41), (16, 16), (18, 18), (7, 5), (101, 8)])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_agrees_with_torchvision_to_the_pixel(size, interpolation):
    image = Image.fromarray(noise(*size))
    method = transforms.InterpolationMode(interpolation)
    expected = transforms.Compose([transforms.Resize(18, method), transforms.CenterCrop(16)])(image)
    np.testing.assert_array_equal(decode(image, settings(interpolation=interpolation)), np.asarray(expected))


@pytest.mark.parametrize(("crop_mode", "mode"), [("center", "shortest"), ("squash", "squash")])
@pytest.mark.parametrize("crop_pct", [0.9, 0.875, 1.0])
def test_agrees_with_the_evaluation_transform_of_timm(crop_mode, mode, crop_pct):
    image = Image.fromarray(noise(61, 47))
    transform = create_transform(
        (3, 24, 24), interpolation="bicubic", crop_pct=crop_pct, crop_mode=crop_mode, mean=(0, 0, 0), std=(1, 1, 1)
    )
    expected = (transform(image) * 255).round().byte().permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(decode(image, settings(24, int(24 / crop_pct), mode)), expected)


def test_a_crop_larger_than_the_resized_image_is_padded_as_torchvision_does():
    image = Image.fromarray(noise(30, 20))
    expected = transforms.Compose([transforms.Resize(10), transforms.CenterCrop(16)])(image)
    np.testing.assert_array_equal(decode(image, settings(16, 10, interpolation="bilinear")), np.asarray(expected))


@pytest.mark.parametrize("size", [(1, 500), (3000, 1), (201, 6), (3, 130)])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("resize", [12, 18])
def test_case_27_extreme_shapes_agree_with_torchvision_without_its_memory(size, interpolation, resize):
    image = Image.fromarray(noise(*size) // 4 + 96)  # no filter overshoots 0..255: PIL clips between its two passes
    method = transforms.InterpolationMode(interpolation)
    whole = transforms.Compose([transforms.Resize(resize, method), transforms.CenterCrop(16)])(image)
    ours = decode(image, settings(16, resize, interpolation=interpolation)).astype(int)
    difference = np.abs(ours - np.asarray(whole))
    assert difference.max() <= 2 or (interpolation == "nearest" and (difference > 0).mean() < 0.1)


def test_case_27_an_extreme_shape_at_full_size_is_quick():
    assert decode(Image.fromarray(noise(60000, 1)), settings(224, 256)).shape == (224, 224, 3)
    assert only_value(np.full((1, 1), 77, np.uint8)) == 77


# Colour


def test_transparency_is_composited_on_white():
    transparent_red = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert to_rgb(transparent_red).getpixel((0, 0)) == (255, 255, 255)
    half_black = Image.new("LA", (4, 4), (0, 128))
    assert to_rgb(half_black).getpixel((0, 0)) == (127, 127, 127)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30])
    assert to_rgb(palette).getpixel((0, 0)) == (10, 20, 30)
    palette.info["transparency"] = 0
    assert to_rgb(palette).getpixel((0, 0)) == (255, 255, 255)
    keyed = Image.open(io.BytesIO(encoded(Image.new("RGB", (4, 4), (1, 2, 3)), "PNG", transparency=(1, 2, 3))))
    assert to_rgb(keyed).getpixel((0, 0)) == (255, 255, 255)
    assert to_rgb(Image.new("PA", (4, 4))).mode == "RGB"


def test_the_orientation_of_a_photograph_is_applied():
    image = Image.new("RGB", (20, 10), "white")
    image.paste("black", (0, 0, 10, 10))  # the left half
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn clockwise: the left half comes out on top
    upright = to_rgb(Image.open(io.BytesIO(encoded(image, "JPEG", quality=95, exif=exif))))
    assert upright.size == (10, 20)
    assert upright.getpixel((5, 3))[0] < 20
    assert upright.getpixel((5, 16))[0] > 235


def test_a_damaged_orientation_does_not_spoil_the_image():
    damaged = encoded(Image.new("RGB", (8, 8), (9, 9, 9)), "PNG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert only_value(damaged) == 9


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
@pytest.mark.parametrize(("stored", "expected"), [(0, 0), (257, 1), (32768, 128), (65535, 255), (255, 1)])
def test_case_26_16_bit_files_are_scaled_by_the_range_of_the_type(form, stored, expected):
    image = Image.fromarray(np.full((20, 20), stored, np.uint16))
    assert image.mode == "I;16"
    assert only_value(encoded(image, form)) == expected


def test_case_26_32_bit_integers_are_taken_as_16_bit_or_refused():
    assert only_value(encoded(Image.fromarray(np.full((20, 20), 65535, np.int32)), "TIFF")) == 255
    with pytest.raises(BadImage, match="0 to 65535"):
        decode(encoded(Image.fromarray(np.full((20, 20), 65536, np.int32)), "TIFF"), settings())
    with pytest.raises(BadImage, match="from -1"):
        decode(Image.fromarray(np.full((20, 20), -1, np.int32)), settings())


@pytest.mark.parametrize(("stored", "expected"), [(0.0, 0), (0.5, 128), (1.0, 255)])
def test_case_26_float_files_between_0_and_1_are_scaled(stored, expected):
    assert only_value(encoded(Image.fromarray(np.full((20, 20), stored, np.float32)), "TIFF")) == expected


@pytest.mark.parametrize("stored", [1.5, -0.1, 200.0, np.nan, np.inf])
def test_case_26_other_floats_are_refused_with_the_range(stored):
    with pytest.raises(BadImage, match="expected 0 to 1"):
        decode(encoded(Image.fromarray(np.full((20, 20), stored, np.float32)), "TIFF"), settings())


@pytest.mark.parametrize(
    "mode", ["1", "L", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "LA", "PA", "RGBa"]
)
def test_every_mode_becomes_rgb(mode):
    assert to_rgb(Image.new(mode, (3, 2))).mode == "RGB"


def test_the_first_frame_stands_for_the_whole_file():
    frames = [Image.new("RGB", (20, 20), (value,) * 3) for value in (50, 100, 150)]
    for form in ("GIF", "TIFF"):
        assert only_value(encoded(frames[0], form, save_all=True, append_images=frames[1:])) == 50


def test_arrays_follow_the_same_rules():
    assert only_value(np.full((9, 9), 7, np.uint8)) == 7
    assert only_value(np.full((9, 9, 1), 7, np.uint8)) == 7
    assert only_value(np.full((9, 9, 3), 65535, np.uint16)) == 255
    assert only_value(np.full((9, 9, 3), 0.2)) == 51
    assert only_value(np.full((9, 9), True)) == 255
    assert only_value(np.full((9, 9, 4), (0, 0, 0, 0), np.uint8)) == 255
    big_endian = np.full((9, 9), 65535, np.dtype(">u2"))
    assert only_value(big_endian) == 255


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 9, 9), np.uint8),
        np.zeros((0, 9), np.uint8),
        np.zeros(9, np.uint8),
        np.zeros((9, 9), np.int64),
        np.zeros((9, 9), complex),
    ],
)
def test_arrays_of_another_kind_are_refused(array):
    with pytest.raises(BadImage, match="expected"):
        decode(array, settings())


# Bad files


def test_case_25_every_truncation_of_a_file_is_found():
    for form in ("JPEG", "PNG"):
        whole = encoded(Image.fromarray(noise(40, 40)), form)
        for length in (1, 10, len(whole) // 4, len(whole) // 2, len(whole) * 9 // 10):
            with pytest.raises(BadImage) as caught:
                decode(whole[:length], settings())
            assert "\n" not in str(caught.value)


def test_case_25_what_is_not_an_image_is_called_what_it_is():
    for data, reason in {
        b"": "empty",
        b"<!DOCTYPE html><html>not found</html>": "HTML page",
        b"version https://git-lfs.github.com/spec/v1\n": "Git LFS",
        b"\x00\x01\x02": "not an image",
    }.items():
        with pytest.raises(BadImage, match=reason):
            decode(data, settings())


def test_a_file_that_is_not_there_is_a_bad_image(tmp_path):
    with pytest.raises(BadImage, match="No such file"):
        decode(tmp_path / "x.png", settings())


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("side", [10_000, 100_000])  # PIL warns at the first, refuses the second
def test_a_decompression_bomb_is_a_bad_image_and_is_not_decoded(strict, side):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore")
        with pytest.raises(BadImage, match="decompression bombs"):
            decode(bomb, settings())


def test_encapsulated_postscript_is_never_run():
    with pytest.raises(BadImage, match="not an image"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", settings())


def test_a_null_byte_in_a_name_is_a_bad_image() -> None:
    with pytest.raises(BadImage, match="not that of a file"):
        decode("a\0b.png", Preprocessing(image_size=8, resize=8, mean=(0, 0, 0), std=(1, 1, 1)))
