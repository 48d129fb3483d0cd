"""Remove the sites of a plan from a model: a new module, which shares its parameters with the untouched original."""

from torch import nn

from serpette.errors import PlanError
from serpette.models.base import Adapter, RemainingBranch, adapt, sharing_copy
from serpette.records import Plan, Site


def prune(model: nn.Module, plan: Plan) -> nn.Module:
    """Remove the sites of `plan` from `model`.

    Args:
        model: a dense model of a supported family; it is not changed.
        plan: what to remove, in the numbering of `model`.

    Returns:
        A new model of the same class. Its parameters have the storage of those of `model`; dropped ones are gone.

    Raises:
        PlanError: the plan does not fit the model, or the model has been pruned before.
        ModelError: the model belongs to no supported family.
    """
    dense = adapt(model)
    check_dense(dense)
    plan.check(len(dense.blocks))
    pruned = adapt(sharing_copy(dense.model))
    pruned.replace_blocks(remaining_blocks(pruned, plan))
    check_removed(dense, pruned, plan)
    pruned.model.serpette_origin = dense.origin._replace(plan=plan)  # type: ignore[assignment]
    return pruned.model


def remaining_blocks(adapter: Adapter, plan: Plan) -> list[nn.Module]:
    """The blocks that `plan` leaves: whole ones as they are, half ones around the children of the model's own."""
    remaining: list[nn.Module] = []
    for i, block in enumerate(adapter.blocks):
        if i in plan.drop_attention:
            remaining.append(RemainingBranch(block, adapter.branches(block), "mlp"))
        elif i in plan.drop_mlp:
            remaining.append(RemainingBranch(block, adapter.branches(block), "attention"))
        elif i not in plan.drop_blocks:
            remaining.append(block)
    return remaining


def check_dense(adapter: Adapter) -> None:
    """Make sure that a model has not been pruned before.

    Raises:
        PlanError: it has, so that the numbering of its blocks is no longer that of its plan.
    """
    before = adapter.origin.plan
    if adapter.half_blocks or (before and before.sites):
        raise PlanError(f"{adapter.origin.name} is already pruned; make one plan for the dense model and prune that.")


def kept_blocks(depth: int, plan: Plan) -> tuple[int, ...]:
    """The original numbers of the blocks that stay, whole or half."""
    return tuple(i for i in range(depth) if i not in plan.drop_blocks)


def check_removed(dense: Adapter, pruned: Adapter, plan: Plan) -> None:
    """Make sure that the branches that are gone are those of the plan, and no others.

    Raises:
        PlanError: they are not.
    """
    old = kept_blocks(len(dense.blocks), plan)
    left = {(old[site.block], site.part) for site in pruned.sites() if site.part != "block"}
    gone = {site for site in dense.sites() if site.part != "block" and site not in left}
    halves = {Site(i, part) for i in plan.drop_blocks for part in ("attention", "mlp")}
    planned = halves | {site for site in plan.sites if site.part != "block"}
    if gone != planned:
        raise PlanError(
            f"the plan removes {len(planned)} branches, but {len(gone)} are gone from {dense.architecture}."
        )
