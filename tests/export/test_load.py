"""A model loads from every form in which it is named, with the outputs that its library gives, or says why not."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config
from timm.models._hub import save_for_hf

import serpette
from models.families import hf_config
from serpette.data.decode import decode
from serpette.errors import ModelError, PlanError, RecordError, SerpetteError
from serpette.export.load import as_module
from serpette.models import adapt, inference
from serpette.models.runtime import to_input
from serpette.records import MANIFEST, Plan
from tiny import FAMILY, HF, TIMM, WEIGHTS, answers, blocks, edit_json, named, plain_folder, rename_weights, tiny

LIBRARIES = pytest.mark.parametrize("name", [TIMM, HF])
BLOCK, BRANCH = Plan(drop_blocks=(1,)), Plan(drop_attention=(1,))
PLANS = pytest.mark.parametrize("plan", [BLOCK, BRANCH], ids=["block", "attention"])


def refused(model: str | Path, **options: object) -> str:
    """The single line with which a model is refused."""
    with pytest.raises(SerpetteError) as error:
        serpette.load(model, **options)  # type: ignore[arg-type]
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


# Names


@LIBRARIES
@pytest.mark.parametrize("form", ["{}", "hf:{}", "timm:local-dir:{}"])
def test_a_folder_loads_by_every_name_whatever_library_wrote_it(name: str, form: str, tmp_path: Path) -> None:
    model = tiny(name)
    plain = plain_folder(model, tmp_path / "plain")
    ours = serpette.save(serpette.prune(model, BRANCH), tmp_path / "ours")
    assert torch.equal(answers(serpette.load(form.format(plain))), answers(model))
    assert adapt(serpette.load(form.format(ours))).origin.plan == BRANCH


def test_an_unknown_timm_name_gets_suggestions() -> None:
    assert "did you mean vit_tiny_patch16_224" in refused("timm:vit_tiny_patch16_22")
    assert "timm has no model 'zzz'" in refused("timm:zzz")


@pytest.mark.parametrize("name", ["nowhere", "./nowhere", "timm:local-dir:nowhere", "hf:", "timm:", ""])
def test_a_name_of_nothing_says_what_is_expected(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "expected `demo`, `timm:NAME`, `hf:REPOSITORY` or a folder" in refused(name)


def test_a_timm_model_of_another_kind_is_refused() -> None:
    message = refused("timm:resnet18", random_weights=True)
    assert "ResNet is not a supported timm model: looked for `forward_features` and `blocks` made of Block" in message


@LIBRARIES
@pytest.mark.parametrize("device", ["nope", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused(name: str, device: str, tmp_path: Path) -> None:
    assert f"device '{device}' is not usable here" in refused(plain_folder(tiny(name), tmp_path / "m"), device=device)


# Cases 1, 2, 4: folders whose configuration does not say what their weights hold


@pytest.mark.parametrize("family", ["transformers-vit", "transformers-vit-classifier"])
def test_a_vit_without_an_attention_saved_naively_is_refused(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    block = blocks(family, model)[1]
    del block.attention, block.layernorm_before
    model.save_pretrained(tmp_path)
    assert "do not fit its config.json" in refused(tmp_path)


@pytest.mark.parametrize("family", [HF, "transformers-dinov2", "transformers-clip"])
def test_a_shortened_list_saved_without_its_configuration_is_refused(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    del blocks(family, model)[2:]
    model.save_pretrained(tmp_path)
    assert "probably pruned without its configuration" in refused(tmp_path)


def test_a_configuration_with_too_few_layers_is_refused(tmp_path: Path) -> None:
    folder = plain_folder(tiny(HF), tmp_path / "m")
    edit_json(folder / "config.json", num_hidden_layers=3)
    assert "do not fit its config.json" in refused(folder)


def test_a_head_of_another_size_than_the_configuration_says_is_refused(tmp_path: Path) -> None:
    folder = plain_folder(tiny(HF), tmp_path / "m")
    edit_json(folder / "config.json", id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    assert "such as classifier" in refused(folder)


def test_a_shortened_timm_model_saved_without_its_depth_is_refused(tmp_path: Path) -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, patch_size=8, depth=4)
    model.blocks = model.blocks[:2]
    save_for_hf(model, str(tmp_path), safe_serialization=True)
    assert "Missing key" in refused(tmp_path)


def test_a_timm_folder_that_speaks_of_two_numbers_of_classes_is_refused(tmp_path: Path) -> None:
    folder = plain_folder(serpette.prune(tiny(TIMM), BLOCK), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["model_args"] |= {"num_classes": 9, "depth": 4}  # timm then loads 12 blocks, 2 of them random
    (folder / "config.json").write_text(json.dumps(config))
    timm.create_model(f"local-dir:{folder}", pretrained=True)
    assert "speaks of 5 and of 9 classes" in refused(folder)


# Case 10: the prefixes of wrappers


@LIBRARIES
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_weights_saved_from_a_wrapper_load(name: str, prefix: str, tmp_path: Path) -> None:
    model = tiny(name)
    folder = plain_folder(model, tmp_path / "m")
    rename_weights(folder, prefix)
    assert torch.equal(answers(serpette.load(folder)), answers(model))


# Damage


@pytest.mark.parametrize("plan", [Plan(), BRANCH], ids=["stock", "serpette"])
@LIBRARIES
def test_a_truncated_edited_or_missing_file_is_refused_with_the_reason(name: str, plan: Plan, tmp_path: Path) -> None:
    whole = serpette.save(serpette.prune(tiny(name), plan), tmp_path / "whole")
    for file in (file.name for file in whole.iterdir() if file.name != MANIFEST):
        folder = shutil.copytree(whole, tmp_path / file)
        content = (folder / file).read_bytes()
        for damaged in (content[:-1], content[:5], b"", content[:-1] + b"x"):
            (folder / file).write_bytes(damaged)
            assert f"{file} was changed or cut off since it was saved" in refused(folder)
        (folder / file).unlink()
        assert f"{file} is missing; copy the whole folder" in refused(folder)


@LIBRARIES
@pytest.mark.parametrize("size", [0, 4, 1000])
def test_truncated_weights_without_a_manifest_are_refused(name: str, size: int, tmp_path: Path) -> None:
    folder = plain_folder(tiny(name), tmp_path / "m")
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size])
    refused(folder)
    (folder / WEIGHTS).unlink()
    refused(folder)


@LIBRARIES
@pytest.mark.parametrize(
    "changes",
    [
        {"half_blocks": {"9": "mlp"}},
        {"half_blocks": {"0": "block"}},
        {"half_blocks": {}},
        {"half_blocks": {"0": "mlp", "1": "attention"}},
        {"blueprint": {}},
        {"blueprint": {"architecture": "nope", "class": "Nope"}},
        {"library": "keras"},
        {"kind": "plan"},
        {"schema_version": 99},
        {"files": 3},
    ],
    ids=str,
)
def test_an_edited_manifest_is_refused(name: str, changes: dict[str, object], tmp_path: Path) -> None:
    folder = serpette.save(serpette.prune(tiny(name), BRANCH), tmp_path / "m")
    edit_json(folder / MANIFEST, **changes)
    assert str(folder) in refused(folder) or "has no" in refused(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kind": "pruning"}'])
def test_a_manifest_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    folder = serpette.save(tiny(TIMM), tmp_path / "m")
    (folder / MANIFEST).write_text(text)
    with pytest.raises(RecordError):
        serpette.load(folder)


@LIBRARIES
@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[1]",
        '{"architecture": "nope_vit"}',
        '{"architecture": 3}',
        '{"model_type": "nope"}',
        '{"model_type": "vit", "hidden_size": "a"}',
        '{"model_type": "vit", "architectures": ["NopeForImageClassification"]}',
        '{"model_type": "vit"}',
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(name: str, config: str, tmp_path: Path) -> None:
    folder = plain_folder(tiny(name), tmp_path / "m")
    (folder / "config.json").write_text(config)
    refused(folder)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pwned",)


@LIBRARIES
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_is_never_unpickled_unsafely(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny(name)
    folder = plain_folder(model, tmp_path / "m")
    (folder / WEIGHTS).unlink()
    torch.save({"weight": Evil()}, folder / "pytorch_model.bin")
    refused(folder)
    assert not Path("pwned").exists()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")  # one of plain tensors is harmless
    if name == TIMM:
        assert torch.equal(answers(serpette.load(folder)), answers(model))


# Sizes, precisions, random weights


@pytest.mark.parametrize("name", [family for family in FAMILY if family.startswith("transformers")])
def test_another_image_size_equals_the_interpolation_of_transformers(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    loaded = serpette.load(serpette.save(model, tmp_path / "m"), image_size=48)
    x = torch.randn(2, 3, 48, 48)
    options = {} if "dinov2" in name else {"interpolate_pos_encoding": True}
    with inference(model), inference(loaded):
        expected = model(pixel_values=x, **options)
        assert torch.equal(loaded(pixel_values=x)[0], expected[0])
    assert adapt(loaded).preprocessing.image_size == 48
    assert torch.equal(answers(as_module(model, image_size=48), x), answers(loaded, x))


@pytest.mark.parametrize("name", [TIMM, "timm-deit-distilled", "timm-dinov2-registers", "timm-clip-pre-norm"])
def test_another_image_size_equals_the_interpolation_of_timm(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    folder = serpette.save(model, tmp_path / "m")
    plain = timm.create_model(f"local-dir:{folder}", pretrained=True, img_size=48).eval()
    loaded, x = serpette.load(folder, image_size=48), torch.randn(2, 3, 48, 48)
    assert torch.equal(loaded(x), plain(x))
    resized = as_module(model, image_size=48)
    assert torch.equal(resized(x), plain(x))
    assert adapt(resized).preprocessing == adapt(loaded).preprocessing
    assert adapt(model).preprocessing.image_size == 32


@LIBRARIES
def test_an_image_smaller_than_a_patch_is_refused(name: str, tmp_path: Path) -> None:
    refused(serpette.save(tiny(name), tmp_path / "m"), image_size=3)


@LIBRARIES
def test_half_blocks_keep_the_image_size_that_they_were_pruned_at(name: str, tmp_path: Path) -> None:
    folder = serpette.save(serpette.prune(tiny(name), BRANCH), tmp_path / "m")
    assert "was saved for 32 px; prune again for 48 px" in refused(folder, image_size=48)


@LIBRARIES
@PLANS
@pytest.mark.parametrize(("dtype", "expected"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_a_precision_can_be_asked_for(name: str, plan: Plan, dtype: str, expected: torch.dtype, tmp_path: Path) -> None:
    pruned = serpette.prune(tiny(name), plan)
    loaded = serpette.load(serpette.save(pruned, tmp_path / "m"), dtype=dtype)
    assert {parameter.dtype for parameter in loaded.parameters()} == {expected}
    x = torch.randn(2, 3, 32, 32).to(expected)
    assert torch.equal(answers(loaded, x), answers(pruned.to(expected), x))


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    assert "expected one of fp32, bf16, fp16" in refused(serpette.save(tiny(TIMM), tmp_path / "m"), dtype="int4")


@LIBRARIES
@PLANS
def test_random_weights_need_no_weights_and_keep_the_plan(name: str, plan: Plan, tmp_path: Path) -> None:
    pruned = serpette.prune(tiny(name), plan)
    folder = serpette.save(pruned, tmp_path / "m")
    (folder / WEIGHTS).unlink()
    built = serpette.load(folder, random_weights=True)
    assert {k: v.shape for k, v in built.state_dict().items()} == {k: v.shape for k, v in pruned.state_dict().items()}
    assert adapt(built).origin.plan == plan


def test_the_vision_tower_of_a_whole_clip_is_loaded_or_built(tmp_path: Path) -> None:
    tower = {"intermediate_size": 96, "projection_dim": 16}
    text = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    text |= {"vocab_size": 9, "bos_token_id": 0, "eos_token_id": 1}
    vision = hf_config(transformers.CLIPVisionConfig, **tower).to_dict()
    clip = transformers.CLIPModel(transformers.CLIPConfig(vision_config=vision, text_config=text)).eval()
    clip.save_pretrained(tmp_path)
    x = torch.randn(2, 3, 32, 32)
    loaded, built = serpette.load(tmp_path), serpette.load(tmp_path, random_weights=True)
    assert torch.equal(loaded(pixel_values=x).pooler_output, clip.vision_model(pixel_values=x).pooler_output)
    assert {k: v.shape for k, v in built.state_dict().items()} == {k: v.shape for k, v in loaded.state_dict().items()}


# Preprocessing


@pytest.fixture(params=[84, 83], ids=["even margin", "odd margin"])
def photo(request: pytest.FixtureRequest) -> Image.Image:
    y, x = np.mgrid[:61, : request.param] / 84
    waves = np.stack([np.sin(9 * x + 5 * y), np.cos(7 * x * y), np.sin(13 * y)], 2)
    return Image.fromarray(((waves + 1) * 127).astype(np.uint8))


def prepared(model: torch.nn.Module, photo: Image.Image) -> torch.Tensor:
    preprocessing = adapt(model).preprocessing
    pixels = torch.tensor(decode(photo, preprocessing)).permute(2, 0, 1)[None]
    return to_input(pixels, preprocessing, torch.device("cpu"), torch.float32)[0]


@pytest.mark.parametrize("name", [family for family in FAMILY if family.startswith("timm")])
def test_preprocessing_is_that_of_timm(name: str, photo: Image.Image, tmp_path: Path) -> None:
    model = tiny(name)
    config = {**resolve_data_config({}, model=model), "input_size": (3, 32, 32)}  # its name says 224
    expected = create_transform(**config)(photo)
    # timm normalises to within rounding: (x - mean) / std on floats in another order.
    torch.testing.assert_close(prepared(model, photo), expected, atol=1e-6, rtol=0)
    folder = serpette.save(model, tmp_path / "m")
    saved = timm.create_model(f"local-dir:{folder}", pretrained=True)
    theirs = create_transform(**resolve_data_config({}, model=saved))(photo)
    torch.testing.assert_close(prepared(serpette.load(folder), photo), theirs, atol=1e-6, rtol=0)


PROCESSORS = {
    "vit": transformers.ViTImageProcessor(size={"height": 32, "width": 32}),
    "deit": transformers.DeiTImageProcessor(size={"height": 40, "width": 40}, crop_size={"height": 32, "width": 32}),
    "dinov2": transformers.BitImageProcessor(size={"shortest_edge": 37}, crop_size={"height": 32, "width": 32}),
    "clip": transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_preprocessing_is_that_of_transformers(name: str, photo: Image.Image, tmp_path: Path) -> None:
    plain = plain_folder(tiny(f"transformers-{name}"), tmp_path / "plain")
    PROCESSORS[name].save_pretrained(plain)
    loaded = serpette.load(plain)
    saved = serpette.save(loaded, tmp_path / "saved")
    found = prepared(loaded, photo)
    assert torch.equal(prepared(serpette.load(saved), photo), found)
    for folder in (plain, saved):
        theirs = transformers.AutoImageProcessor.from_pretrained(folder)(photo, return_tensors="pt").pixel_values[0]
        # Their resize runs on uint8 tensors in torchvision, ours in PIL: filters agree, roundings differ by a level
        # or two of 255 (divided by a std of about 0.25).
        assert (found - theirs).abs().max() <= 2.01 / 255 / 0.22
        assert (found - theirs).abs().mean() < 0.3 / 255 / 0.22


@pytest.mark.parametrize(
    "settings",
    [
        "{",
        '{"image_processor_type": "NopeImageProcessor"}',
        '{"image_processor_type": "ViTImageProcessor", "resample": 4}',
        '{"image_processor_type": "ViTImageProcessor", "image_mean": 0.5}',
        '{"image_processor_type": "ViTImageProcessor", "size": "a"}',
        '{"image_processor_type": "ViTImageProcessor", "size": {"height": 30, "width": 31}}',
        '{"image_processor_type": "ViTImageProcessor", "do_resize": false}',
        '{"image_processor_type": "ViTImageProcessor", "do_rescale": false}',
        '{"image_processor_type": "ViTImageProcessor", "rescale_factor": 1}',
    ],
)
def test_a_preprocessing_that_cannot_be_followed_is_refused(settings: str, tmp_path: Path) -> None:
    folder = plain_folder(tiny(HF), tmp_path / "m")
    (folder / "preprocessor_config.json").write_text(settings)
    refused(folder)


# What a loaded model remembers


@LIBRARIES
@PLANS
def test_a_pruned_folder_is_not_pruned_again_but_a_dense_one_is(name: str, plan: Plan, tmp_path: Path) -> None:
    dense = serpette.load(serpette.save(tiny(name), tmp_path / "dense"))
    pruned = serpette.load(serpette.save(serpette.prune(dense, plan), tmp_path / "pruned"))
    with pytest.raises(PlanError, match="already pruned"):
        serpette.prune(pruned, BLOCK)


@LIBRARIES
@PLANS
def test_saving_what_was_loaded_changes_nothing(name: str, plan: Plan, tmp_path: Path) -> None:
    first = serpette.save(serpette.prune(named(tiny(name), "abc"), plan), tmp_path / "a")
    second = serpette.save(serpette.load(first), tmp_path / "b")
    ours, again = (load_file(folder / WEIGHTS) for folder in (first, second))
    assert all(torch.equal(ours[key], again[key]) for key in ours)
    assert adapt(serpette.load(second)).class_names == ("a", "b", "c")
    assert adapt(serpette.load(second)).origin.plan == plan


def test_the_real_dinov2_is_pruned_and_comes_back(assets: Path, tmp_path: Path) -> None:
    dense = serpette.load(assets / "dinov2-small", image_size=98)
    pruned = serpette.prune(dense, Plan(drop_blocks=(9,), drop_attention=(3,)))
    loaded = serpette.load(serpette.save(pruned, tmp_path / "m"))
    x = torch.randn(1, 3, 98, 98)
    assert torch.equal(answers(loaded, x), answers(pruned, x))


@pytest.mark.parametrize("name", ["checkpoint_path", "pretrained", "cache_dir"])
def test_an_edited_manifest_cannot_make_timm_read_other_files(name: str, tmp_path: Path) -> None:
    folder = serpette.save(serpette.prune(tiny(TIMM), Plan(drop_attention=(1,))), tmp_path / "model")
    manifest = json.loads((folder / "pruning.json").read_text())
    manifest["blueprint"]["arguments"][name] = str(tmp_path / "evil.bin")
    (folder / "pruning.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=f"asks timm for {name}"):
        serpette.load(folder)


def test_the_home_of_nobody_is_no_model() -> None:
    with pytest.raises(ModelError, match="there is no model"):
        serpette.load("~nobody-of-this-name/model")


def test_a_folder_with_code_of_its_own_does_not_run_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}, "architectures": ["Evil"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelError):
        serpette.load(tmp_path)
    assert not (tmp_path / "ran").exists()
    assert capsys.readouterr().out == ""


def test_an_image_size_that_cuts_a_patch_is_refused_with_the_nearest_sizes(tmp_path: Path) -> None:
    folder = serpette.save(tiny(TIMM), tmp_path / "model")
    with pytest.raises(ModelError, match="ask for 32 or 40"):
        serpette.load(folder, image_size=35)
