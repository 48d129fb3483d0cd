"""Using the classifier that a model came with on a dataset whose classes are named in another order."""

from collections.abc import Sequence

from serpette.errors import ModelError
from serpette.models.base import Adapter


def own_head_fits(adapter: Adapter, classes: Sequence[str]) -> bool:
    """Whether the model has a classifier that knows every one of `classes` by name."""
    return adapter.class_names is not None and set(classes) <= set(adapter.class_names)


def own_columns(adapter: Adapter, classes: Sequence[str]) -> list[int]:
    """For each of `classes`, the output of the model's own classifier that means it.

    Classes are aligned by name; where the model does not name its classes, their number must be equal and their order
    is taken to be the same.

    Raises:
        ModelError: the model has no classifier, or it does not know one of the classes.
    """
    if not adapter.num_classes:
        raise ModelError(f"{adapter.origin.name} has no classifier of its own; use --head refit.")
    names = adapter.class_names
    if names is None:
        if adapter.num_classes != len(classes):
            raise ModelError(
                f"the classifier of {adapter.origin.name} has {adapter.num_classes} outputs without names, but the "
                f"data has {len(classes)} classes; use --head refit."
            )
        return list(range(len(classes)))
    unknown = [name for name in classes if name not in names]
    if unknown:
        raise ModelError(
            f"the classifier of {adapter.origin.name} does not know {len(unknown)} of the {len(classes)} classes of "
            f"the data, such as {unknown[0]!r} (it knows {names[0]!r}, ...); use --head refit."
        )
    return [names.index(name) for name in classes]
