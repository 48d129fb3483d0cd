"""serpette makes a pretrained vision transformer faster by removing the layers it does not need, without retraining it.

Importing serpette is cheap: torch, timm and transformers are imported by the first function that needs them.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serpette.benchmark.bench import bench
    from serpette.data.scan import scan
    from serpette.evaluation.evaluate import evaluate
    from serpette.evaluation.predict import predict
    from serpette.export.load import load
    from serpette.export.save import save
    from serpette.planning.plan import plan
    from serpette.redundancy.measure import measure
    from serpette.selection.select import select
    from serpette.surgery.prune import prune

__version__ = version("serpette")

_HOMES = {
    "bench": "serpette.benchmark.bench",
    "evaluate": "serpette.evaluation.evaluate",
    "load": "serpette.export.load",
    "measure": "serpette.redundancy.measure",
    "plan": "serpette.planning.plan",
    "predict": "serpette.evaluation.predict",
    "prune": "serpette.surgery.prune",
    "save": "serpette.export.save",
    "scan": "serpette.data.scan",
    "select": "serpette.selection.select",
}

__all__ = ["bench", "evaluate", "load", "measure", "plan", "predict", "prune", "save", "scan", "select"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'serpette' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
