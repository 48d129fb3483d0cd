"""Small values that several records carry: where a number came from, and on what it was measured."""

from typing import Literal

from serpette.records.base import Frozen

Part = Literal["block", "attention", "mlp"]
PARTS: tuple[Part, ...] = ("block", "attention", "mlp")


class ModelRef(Frozen):
    """Which model a record is about.

    `weights` is the content hash of all parameters and buffers (16 hexadecimal digits); `plan` names what is already
    removed from the model, "" for a dense one.
    """

    name: str
    library: str
    family: str
    architecture: str
    depth: int
    image_size: int
    weights: str
    plan: str = ""


class DataRef(Frozen):
    """Which images a record is about.

    `fingerprint` hashes the content of the images of `split` that were used, with their labels; `classes` is the order
    of the class indices.
    """

    name: str
    split: str
    fingerprint: str
    classes: tuple[str, ...]
    n: int
    n_bad: int
    bad: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Provenance(Frozen):
    """The software, the hardware and the settings that produced a record."""

    serpette: str
    python: str
    torch: str
    timm: str
    transformers: str
    device: str
    dtype: str
    attention_backend: str
    threads: int
    seed: int
    created: str


class Preprocessing(Frozen):
    """How an image becomes the model's input.

    Resize with `interpolation` so that the shorter side ("shortest") or both sides ("squash") measure `resize` pixels,
    cut the central square of `image_size` pixels, scale to [0, 1], subtract `mean` and divide by `std` per channel.
    Where the margin of the cut is half a pixel, `crop_margin` "round" goes to even, as torchvision and timm do, and
    "floor" cuts it off, as transformers does.
    """

    image_size: int
    resize: int
    resize_mode: Literal["shortest", "squash"] = "shortest"
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bicubic"
    crop_margin: Literal["round", "floor"] = "round"
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
