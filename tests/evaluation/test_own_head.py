"""A model's own classifier is aligned with the classes of the data by name, never by position."""

import pytest
import torch

from serpette.errors import ModelError
from serpette.evaluation.own_head import own_columns, own_head_fits
from serpette.models import adapt
from tiny import TIMM, answers, named, tiny

KNOWN = ("ash", "birch", "cedar", "datura")


@pytest.mark.parametrize("classes", [KNOWN, KNOWN[::-1], ("datura", "ash"), ("cedar",)])
def test_columns_are_found_by_name(classes: tuple[str, ...]) -> None:
    adapter = adapt(named(tiny(TIMM), KNOWN))
    columns = own_columns(adapter, classes)
    assert [KNOWN[column] for column in columns] == list(classes)
    assert own_head_fits(adapter, classes)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(answers(adapter.model, x)[:, columns[0]], answers(adapter.model, x)[:, KNOWN.index(classes[0])])


def test_a_class_that_the_head_does_not_know_is_an_error() -> None:
    adapter = adapt(named(tiny(TIMM), KNOWN))
    assert not own_head_fits(adapter, ("ash", "elm"))
    with pytest.raises(ModelError, match=r"does not know 1 of the 2 classes of the data, such as 'elm'.*--head refit"):
        own_columns(adapter, ("ash", "elm"))


def test_a_head_without_names_needs_as_many_classes() -> None:
    adapter = adapt(tiny(TIMM))
    assert not own_head_fits(adapter, KNOWN)
    assert own_columns(adapter, "abcde") == [0, 1, 2, 3, 4]
    with pytest.raises(ModelError, match="has 5 outputs without names, but the data has 4 classes"):
        own_columns(adapter, KNOWN)


def test_a_model_without_a_head_says_how_to_get_one() -> None:
    with pytest.raises(ModelError, match="has no classifier of its own; use --head refit"):
        own_columns(adapt(tiny("timm-vit-no-head")), KNOWN)
