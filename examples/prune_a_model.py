"""Make a model faster: measure how redundant its blocks are, remove the most redundant ones, save what is left.

    python examples/prune_a_model.py
    python examples/prune_a_model.py timm:vit_small_patch16_224 --data PHOTOS --drop 3 --out runs/vit-small

Add `--random-weights` to try an architecture without its weights.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import serpette


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the score of every block and where the pruned model is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--images", type=int, default=256, help="how many to measure on")
    parser.add_argument("--drop", type=int, default=2, help="how many blocks to remove")
    parser.add_argument("--out", type=Path, default=Path("runs/pruned"))
    parser.add_argument("--random-weights", action="store_true")
    options = parser.parse_args(arguments)

    model = serpette.load(options.model, random_weights=options.random_weights)
    profile = serpette.measure(model, options.data, images=options.images)
    plan = serpette.plan(profile, method="block", drop=options.drop)
    folder = serpette.save(serpette.prune(model, plan), options.out)

    for site in profile.part("block"):
        print(f"block {site.block:2}  cosine {site.cosine:.3f}{'  removed' * (site.block in plan.drop_blocks)}")
    print(f"saved to {folder}, read back with equal outputs; load it with serpette.load({str(folder)!r})")


if __name__ == "__main__":
    main()
