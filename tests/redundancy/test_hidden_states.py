"""Scores against computations that do not use the tap: the library's recorded hidden states, and a forward by hand."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

import serpette
from models.families import FAMILIES, build
from serpette.data.dataset import open_dataset
from serpette.data.pixels import Pixels
from serpette.models import adapt
from serpette.models.runtime import to_input
from serpette.redundancy.calibrate import profile_pixels

NAMES = ("vit", "dinov2", "dinov2-registers", "clip")


def inputs(pixels: Pixels) -> torch.Tensor:
    (batch, _), *_ = pixels.batches(100)
    return to_input(batch, pixels.preprocessing, torch.device("cpu"), torch.float32)


def mean_cosine(before: torch.Tensor, after: torch.Tensor) -> float:
    return F.cosine_similarity(before.double(), after.double(), dim=-1).mean().item()


def scores(profile, part: str) -> list[float]:
    return [site.cosine for site in profile.part(part)]


@pytest.mark.parametrize("name", NAMES)
def test_block_scores_equal_those_of_the_recorded_hidden_states(name: str) -> None:
    model = build(next(family for family in FAMILIES if family.name == f"transformers-{name}"))
    adapter = adapt(model)
    pixels = Pixels(open_dataset("demo"), "train", adapter.preprocessing, limit=7)
    with torch.inference_mode():
        states = model(inputs(pixels), output_hidden_states=True).hidden_states
    expected = [mean_cosine(a, b) for a, b in pairwise(states)]
    profile = profile_pixels(adapter, pixels, batch_size=3)
    assert scores(profile, "block") == pytest.approx(expected, abs=1e-6)
    window = next(w for w in profile.windows if w.length == 2 and w.start == 1)
    assert window.cosine == pytest.approx(mean_cosine(states[1], states[3]), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_sublayer_scores_equal_a_forward_by_hand(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == f"transformers-{name}")
    model = build(family)
    adapter = adapt(model)
    pixels = Pixels(open_dataset("demo"), "train", adapter.preprocessing, limit=7)
    attention, mlp = [], []
    with torch.inference_mode():
        x = model(inputs(pixels), output_hidden_states=True).hidden_states[0]
        for block in family.blocks(model):
            middle = x + family.attention(block, x)
            after = middle + family.mlp(block, middle)
            attention.append(mean_cosine(x, middle))
            mlp.append(mean_cosine(middle, after))
            x = after
    profile = profile_pixels(adapter, pixels, batch_size=3)
    assert scores(profile, "attention") == pytest.approx(attention, abs=1e-6)
    assert scores(profile, "mlp") == pytest.approx(mlp, abs=1e-6)


def test_real_weights_score_as_their_hidden_states_do(assets) -> None:
    model = serpette.load(assets / "dinov2-small", image_size=98)
    data = assets / "datasets" / "digits"
    profile = serpette.measure(model, data, images=8, batch_size=4)
    pixels = Pixels(open_dataset(data), "train", adapt(model).preprocessing, limit=8)
    with torch.inference_mode():
        states = model(inputs(pixels), output_hidden_states=True).hidden_states
    expected = [mean_cosine(a, b) for a, b in pairwise(states)]
    assert scores(profile, "block") == pytest.approx(expected, abs=1e-5)
