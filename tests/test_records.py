"""Records: JSON both ways, content hashes, one line when a file is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serpette.errors import PlanError, RecordError
from serpette.records import Plan, Profile, Site

blocks = st.lists(st.integers(0, 11), unique=True, max_size=12)


@given(blocks, blocks, blocks)
def test_a_plan_is_the_same_after_json_and_folds_whole_blocks(whole, attention, mlp) -> None:
    plan = Plan(drop_blocks=whole, drop_attention=attention, drop_mlp=mlp)
    assert Plan.from_json(plan.to_json()) == plan
    branches = {(i, part) for i in whole for part in ("attention", "mlp")}
    branches |= {(i, "attention") for i in attention} | {(i, "mlp") for i in mlp}
    found = {(i, part) for i in plan.drop_blocks for part in ("attention", "mlp")}
    found |= {(i, "attention") for i in plan.drop_attention} | {(i, "mlp") for i in plan.drop_mlp}
    assert found == branches
    assert not set(plan.drop_attention) & set(plan.drop_mlp)


def test_the_content_hash_depends_on_content_and_not_on_order() -> None:
    assert Plan(drop_blocks=(3, 1)).content_hash == Plan(drop_blocks=(1, 3)).content_hash
    assert Plan(drop_blocks=(3,)).content_hash != Plan(drop_blocks=(1,)).content_hash


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Plan().drop = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "is not a valid plan"),
        ('{"kind": "profile"}', "this is a profile, not a plan"),
        ('{"kind": "plan", "drop_block": [3]}', "drop_block"),
        ('{"kind": "plan", "drop_blocks": ["x"]}', "drop_blocks"),
        ('{"kind": "plan", "drop_blocks": [-1]}', "blocks count from 0"),
        ('{"kind": "plan", "drop_blocks": [1, 1]}', "named twice"),
        ('{"kind": "plan", "schema_version": 99}', "newer serpette"),
    ],
)
def test_a_wrong_file_is_one_clear_line(text, says, tmp_path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(RecordError, match=says) as caught:
        Plan.load(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_and_a_binary_file_are_one_clear_line(tmp_path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        Profile.load(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="not a text file"):
        Profile.load(tmp_path / "binary")


def test_json_names_its_kind_first() -> None:
    assert next(iter(json.loads(Plan().to_json()))) == "kind"


def test_sites_read_as_words() -> None:
    plan = Plan(drop_blocks=(3,), drop_attention=(5,), drop_mlp=(7,))
    assert [str(site) for site in plan.sites] == ["block 3", "attention of block 5", "mlp of block 7"]
    assert Site(3, "block") in plan.sites


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (Plan(drop_blocks=(12,)), r"Plan removes block 12, but this model has 12 blocks \(0-11\).*did you mean 11\?"),
        (Plan(drop_blocks=range(12)), "all 12 blocks"),
        (Plan(drop_attention=range(12)), "the attention of all 12 blocks"),
        (Plan(drop_blocks=range(6), drop_mlp=range(6, 12)), "the mlp of all 12 blocks"),
        (Plan(depth=24), "made for a model of 24 blocks, but this model has 12"),
    ],
)
def test_a_plan_that_leaves_no_working_model_is_refused(plan, says) -> None:
    with pytest.raises(PlanError, match=says):
        plan.check(12)
