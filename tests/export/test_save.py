"""What was measured is what is saved: it loads again with equal outputs, or the save fails and leaves nothing."""

import json
import os
from pathlib import Path

import pytest
import timm
import torch
import transformers

import serpette
from models.families import DEPTH
from serpette.errors import SaveError, SerpetteError
from serpette.export import save as save_module
from serpette.export.load import as_module
from serpette.models import adapt
from serpette.models.timm import crop_pct
from serpette.records import MANIFEST, Plan, Preprocessing, Pruning
from tiny import HF, TIMM, WEIGHTS, answers, blocks, named, tiny

LIBRARIES = pytest.mark.parametrize("name", [TIMM, HF])
SOME = pytest.mark.parametrize("name", [TIMM, HF, "transformers-dinov2", "transformers-clip-classifier"])
BLOCK, BRANCH = Plan(drop_blocks=(1,)), Plan(drop_attention=(1,))
PLANS = pytest.mark.parametrize("plan", [BLOCK, BRANCH], ids=["block", "attention"])


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# Case 1, 2, 3: blocks or branches that are gone without a word in the configuration


@SOME
def test_blocks_deleted_by_hand_are_counted_in_the_saved_configuration(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    del blocks(name, model)[1:3]
    loaded = serpette.load(serpette.save(model, tmp_path / "model"))
    assert len(blocks(name, loaded)) == DEPTH - 2
    assert torch.equal(answers(loaded), answers(model))


@PLANS
@LIBRARIES
def test_an_attention_deleted_by_hand_is_not_saved(name: str, plan: Plan, tmp_path: Path) -> None:
    model = tiny(name)
    block = blocks(name, model)[1]
    for child in ("norm1", "attn") if name == TIMM else ("layernorm_before", "attention"):
        setattr(block, child, torch.nn.Identity() if name == TIMM else Nothing())
    with pytest.raises(SaveError) as error:
        serpette.save(model, tmp_path / "model")
    assert "\n" not in str(error.value)
    assert not os.listdir(tmp_path)


class Nothing(torch.nn.Module):
    """An identity that takes any keyword, as in case 7."""

    def forward(self, x: torch.Tensor, *_args: object, **_kwargs: object) -> tuple[torch.Tensor, None]:
        return x, None


# Case 9: tensors that safetensors does not take


@SOME
def test_a_block_that_is_used_twice_is_saved_twice(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    blocks(name, model)[2] = blocks(name, model)[1]
    loaded = serpette.load(serpette.save(model, tmp_path / "model"))
    assert torch.equal(answers(loaded), answers(model))


@LIBRARIES
def test_a_half_block_of_a_block_that_is_used_twice_is_saved(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    blocks(name, model)[2] = blocks(name, model)[1]
    pruned = serpette.prune(model, BRANCH)
    assert torch.equal(answers(serpette.load(serpette.save(pruned, tmp_path / "model"))), answers(pruned))


@SOME
def test_tied_and_non_contiguous_tensors_are_saved(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    first, second = (list(blocks(name, model)[i].parameters()) for i in (0, 1))
    for a, b in zip(first, second, strict=True):
        b.data = a.data  # tied by storage, not by object
    for parameter in list(blocks(name, model)[2].parameters()):
        if parameter.ndim == 2:
            parameter.data = parameter.data.t().contiguous().t()
    loaded = serpette.load(serpette.save(model, tmp_path / "model"))
    assert torch.equal(answers(loaded), answers(model))


# Precisions


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@PLANS
@LIBRARIES
def test_any_precision_is_saved_as_it_is(name: str, plan: Plan, dtype: torch.dtype, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = serpette.save(serpette.prune(tiny(name).to(dtype), plan), tmp_path / "model")
    assert {tensor.dtype for tensor in load_file(folder / WEIGHTS).values()} == {dtype}


@LIBRARIES
def test_a_model_that_answers_with_nan_is_not_saved(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    next(blocks(name, model)[0].parameters()).data.fill_(torch.nan)
    with pytest.raises(SaveError, match="difference nan"):
        serpette.save(model, tmp_path / "model")
    assert not os.listdir(tmp_path)


def test_a_timm_model_that_nobody_can_build_by_name_is_not_saved(tmp_path: Path) -> None:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, num_heads=3, depth=2)
    with pytest.raises(SaveError, match=r"timm cannot build a VisionTransformer by name.*timm\.create_model"):
        serpette.save(model, tmp_path / "model")


@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, torch.compile], ids=["DataParallel", "compile"])
@PLANS
@LIBRARIES
def test_wrapped_models_are_saved_without_their_wrapper(name: str, plan: Plan, wrap, tmp_path: Path) -> None:
    pruned = serpette.prune(tiny(name), plan)
    loaded = serpette.load(serpette.save(wrap(pruned), tmp_path / "model"))
    assert torch.equal(answers(loaded), answers(pruned))


# What else is in the folder


@PLANS
@LIBRARIES
def test_the_manifest_tells_what_was_removed_from_what(name: str, plan: Plan, tmp_path: Path) -> None:
    dense = serpette.load(serpette.save(named(tiny(name), "abc"), tmp_path / "dense"))
    folder = serpette.save(serpette.prune(dense, plan), tmp_path / "pruned")
    manifest = Pruning.load(folder / MANIFEST)
    assert manifest.plan == plan
    assert manifest.base == str(tmp_path / "dense")
    assert manifest.kept == ((0, 2, 3) if plan == BLOCK else (0, 1, 2, 3))
    assert manifest.classes == ("a", "b", "c")
    assert set(manifest.files) == {file.name for file in folder.iterdir()} - {MANIFEST}
    origin = adapt(serpette.load(folder)).origin
    assert (origin.plan, origin.base, origin.name) == (plan, str(tmp_path / "dense"), str(folder))


def test_a_timm_folder_opens_in_transformers_with_its_class_names(tmp_path: Path) -> None:
    pruned = serpette.prune(named(tiny(TIMM), "abc"), BLOCK)
    folder = serpette.save(pruned, tmp_path / "model")
    opened = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    assert opened.config.id2label == {0: "a", 1: "b", 2: "c"}
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(opened(x).logits, answers(pruned, x))
    assert "num_classes" not in json.loads((folder / "config.json").read_text())["model_args"]


def test_a_resized_timm_model_is_saved_at_its_new_size(tmp_path: Path) -> None:
    resized = as_module(serpette.load(serpette.save(tiny(TIMM), tmp_path / "small")), image_size=48)
    folder = serpette.save(resized, tmp_path / "large")
    loaded, plain = serpette.load(folder), timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    x = torch.randn(2, 3, 48, 48)
    assert adapt(loaded).preprocessing == adapt(resized).preprocessing
    assert torch.equal(answers(loaded, x), answers(resized, x))
    assert torch.equal(plain(x), answers(resized, x))


def test_timm_gets_back_every_resize_from_the_crop_fraction() -> None:
    import math

    grey = (0.5, 0.5, 0.5)
    for side in (28, 32, 98, 224, 384, 518):
        for resize in range(side - side // 3, 3 * side):
            fraction = crop_pct(Preprocessing(image_size=side, resize=resize, mean=grey, std=grey))
            assert math.floor(side / fraction) == resize
    usual = [(224, 248, 0.9), (224, 256, 0.875), (224, 224, 1.0), (224, 235, 0.95)]
    for side, resize, expected in usual:
        assert crop_pct(Preprocessing(image_size=side, resize=resize, mean=grey, std=grey)) == expected


# Where it is written


@LIBRARIES
def test_our_own_folder_is_replaced_whole(name: str, tmp_path: Path) -> None:
    folder = serpette.save(tiny(name), tmp_path / "model")
    serpette.save(serpette.prune(tiny(name), BRANCH), folder)
    assert sorted(os.listdir(folder)) == [WEIGHTS, MANIFEST]
    assert os.listdir(tmp_path) == ["model"]


def test_our_own_folder_with_a_file_of_the_users_is_left_alone(tmp_path: Path) -> None:
    folder = serpette.save(tiny(TIMM), tmp_path / "model")
    (folder / "notes.txt").write_text("mine")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SerpetteError, match=r"also holds notes\.txt"):
        serpette.save(serpette.prune(tiny(TIMM), BRANCH), folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_an_empty_folder_and_a_new_one_are_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "deep" / "er"):
        assert (serpette.save(tiny(TIMM), folder) / MANIFEST).is_file()


def test_a_link_to_our_folder_stays_a_link(tmp_path: Path) -> None:
    serpette.save(tiny(TIMM), tmp_path / "model")
    (tmp_path / "latest").symlink_to("model")
    serpette.save(serpette.prune(tiny(TIMM), BRANCH), tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert sorted(os.listdir(tmp_path / "model")) == [WEIGHTS, MANIFEST]
    assert sorted(os.listdir(tmp_path)) == ["latest", "model"]


def test_somebody_elses_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(SerpetteError, match="not empty and was not written by serpette; choose another folder"):
        serpette.save(tiny(TIMM), tmp_path / "thesis")
    assert files(tmp_path) == {"thesis/chapter.tex": b"years of work"}


@pytest.mark.parametrize(
    "place", ["file", "file/below", "/proc/nowhere", "x" * 300], ids=["file", "below", "proc", "long"]
)
def test_a_place_that_cannot_be_written_is_one_clear_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SerpetteError) as error:
        serpette.save(tiny(TIMM), tmp_path / place)
    assert "\n" not in str(error.value)
    assert place in str(error.value)
    assert files(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("broken", ["check_equal", "manifest_of"])
@pytest.mark.parametrize(
    "crash", [KeyboardInterrupt, RuntimeError("bang"), OSError(28, "No space left on device")], ids=repr
)
def test_a_crash_in_the_middle_leaves_the_old_folder(broken: str, crash, tmp_path: Path, monkeypatch) -> None:
    folder = serpette.save(tiny(TIMM), tmp_path / "model")
    before = files(tmp_path)

    def fall(*_args: object) -> None:
        raise crash

    monkeypatch.setattr(save_module, broken, fall)
    with pytest.raises((SerpetteError, KeyboardInterrupt)):
        serpette.save(serpette.prune(tiny(TIMM), BLOCK), folder)
    assert files(tmp_path) == before


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch) -> None:
    folder = serpette.save(tiny(TIMM), tmp_path / "model")
    before, rename = files(tmp_path), Path.rename

    def once(self: Path, target: Path) -> Path:
        if Path(target) == folder and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(SerpetteError, match="Input/output error"):
        serpette.save(serpette.prune(tiny(TIMM), BLOCK), folder)
    assert files(tmp_path) == before
