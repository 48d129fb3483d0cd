"""How accurate is a pruned model? That depends on its classifier; here are three, none of which trains the model.

own     the classifier that the model came with
frozen  one fitted on the features of the dense model, then left alone
refit   one fitted on the features of the pruned model

    python examples/compare_heads.py
    python examples/compare_heads.py runs/my-model --data PHOTOS --drop 3

The model's own classifier must know the classes of the data.
"""

import argparse
from collections.abc import Sequence
from typing import get_args

import serpette
from serpette.records import HeadKind


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the accuracy of the dense model, and of the pruned one with each classifier."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--drop", type=int, default=2, help="how many blocks to remove")
    parser.add_argument("--limit", type=int, help="images of each split (all)")
    options = parser.parse_args(arguments)

    dense = serpette.load(options.model)
    profile = serpette.measure(dense, options.data, images=options.limit or 512)
    pruned = serpette.prune(dense, serpette.plan(profile, method="block", drop=options.drop))

    baseline = serpette.evaluate(dense, options.data, head="own", limit=options.limit)
    print(f"dense   {baseline.top1:5.1f} % top-1 on {baseline.n} test images")
    for head in get_args(HeadKind):
        scores = serpette.evaluate(pruned, options.data, head=head, base=dense, limit=options.limit)
        print(f"{head:6}  {scores.top1:5.1f} % without {options.drop} blocks")


if __name__ == "__main__":
    main()
