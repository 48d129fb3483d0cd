"""Train the model that ships as `demo`, and cut the images that ship with it.

    python scripts/train_demo_model.py --data /usr/share/datasets/fashion-mnist --work runs/demo-training

A timm ViT of 12 blocks and width 128 on Fashion-MNIST (28 x 28, patches of 7). The 1,000 validation images that ship
are kept out of training, and the test images come from Fashion-MNIST's own test file. An interrupted run continues
from its last finished epoch. `src/serpette/demo/training.log` is the log of the run that made the shipped weights.
"""

import argparse
import gzip
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

ARCHITECTURE = "vit_tiny_patch16_224"
MODEL_ARGS = {"img_size": 28, "patch_size": 7, "embed_dim": 128, "num_heads": 4, "depth": 12}
CLASSES = [
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot",
]  # fmt: skip
MEAN, STD = 0.2860, 0.3530  # of the training images, in [0, 1]
IMAGES_PER_CLASS = {"train": 100, "val": 100, "test": 100}
SHIPPED = Path(__file__).parents[1] / "src" / "serpette" / "demo"


def read_idx(path: Path) -> np.ndarray:
    """An IDX file (the format of MNIST): magic number, dimensions, bytes."""
    raw = gzip.decompress(path.read_bytes())
    dimensions = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dimensions)


def draw(labels: np.ndarray, per_class: int, taken: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    free = np.setdiff1d(np.arange(len(labels)), taken)
    return np.concatenate([rng.choice(free[labels[free] == c], per_class, replace=False) for c in range(len(CLASSES))])


def cut_demo_images(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Write demo.npz; return the indices of the training file that must not be trained on."""
    rng = np.random.default_rng(0)
    val = draw(train[1], IMAGES_PER_CLASS["val"], np.array([], int), rng)
    shown = draw(train[1], IMAGES_PER_CLASS["train"], val, rng)
    unseen = draw(test[1], IMAGES_PER_CLASS["test"], np.array([], int), rng)
    arrays = {"classes": np.array(CLASSES)}
    for split, (images, labels), index in (("train", train, shown), ("val", train, val), ("test", test, unseen)):
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images[index], labels[index]
    np.savez_compressed(SHIPPED / "demo.npz", **arrays)
    return val


def normalised(images: np.ndarray) -> Tensor:
    x = (torch.from_numpy(images.copy()).float().div_(255) - MEAN) / STD
    return x.unsqueeze(1)  # (N, 1, 28, 28)


def augmented(x: Tensor) -> Tensor:
    """Mirror half of the images, shift every image by up to two pixels."""
    x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(-1), x)
    padded = F.pad(x, (2, 2, 2, 2), value=-MEAN / STD)
    dx, dy = torch.randint(0, 5, (2, len(x), 1, 1))
    rows, cols = torch.arange(28).view(1, 28, 1) + dy, torch.arange(28).view(1, 1, 28) + dx
    return padded[:, 0][torch.arange(len(x)).view(-1, 1, 1), rows, cols].unsqueeze(1)


def forward(model: nn.Module, images: Tensor, block_drop: float) -> Tensor:
    """Stochastic depth over whole batches, which saves the work that it leaves out."""
    x = model._pos_embed(model.patch_embed(images.expand(-1, 3, -1, -1)))
    for i, block in enumerate(model.blocks):
        if random.random() >= block_drop * i / (len(model.blocks) - 1):
            x = block(x)
    return model.forward_head(model.norm(x))


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    right = sum(
        (model(a.expand(-1, 3, -1, -1)).argmax(1) == b).sum().item()
        for a, b in zip(x.split(500), y.split(500), strict=True)
    )
    model.train()
    return 100 * right / len(y)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by five Newton-Schulz steps (Jordan et al. 2024), scaled to the size of an AdamW update.

    torch.optim.Muon does these steps in bfloat16, which takes longer on a CPU than the whole backward pass.
    """

    def __init__(self, params: list[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.05) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]  # not those of a block dropped in this step
            for shape in {p.shape for p in trained}:
                alike = [p for p in trained if p.shape == shape]
                gradients = torch.stack([p.grad for p in alike])
                buffers = torch.stack([self.state[p].get("momentum", torch.zeros_like(p)) for p in alike])
                buffers.lerp_(gradients, 1 - group["momentum"])
                updates = orthogonalised(gradients.lerp(buffers, group["momentum"]))
                for p, buffer, update in zip(alike, buffers, updates, strict=True):
                    self.state[p]["momentum"] = buffer
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-0.2 * max(shape) ** 0.5 * group["lr"])


def orthogonalised(m: Tensor) -> Tensor:
    """(n, rows, columns) -> the same with all singular values near 1."""
    x = m.mT if m.shape[1] > m.shape[2] else m
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if m.shape[1] > m.shape[2] else x


def optimisers(model: nn.Module) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon for the matrices of the blocks, AdamW for everything else, each with its peak learning rate."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [(Muon(matrices, lr=2e-3), 2e-3), (torch.optim.AdamW(others, weight_decay=0.05), 2e-3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--work", type=Path, default=Path("runs/demo-training"))
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--block-drop", type=float, default=0.1, help="of the deepest block; rises linearly from 0")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)

    names = {
        s: [args.data / f"{f}-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1")]
        for s, f in (("train", "train"), ("test", "t10k"))
    }
    train, test = (tuple(map(read_idx, names[s])) for s in ("train", "test"))
    held_out = cut_demo_images(train, test)
    seen = np.setdiff1d(np.arange(len(train[1])), held_out)
    x, y = normalised(train[0][seen]), torch.from_numpy(train[1][seen]).long()
    x_val, y_val = normalised(train[0][held_out]), torch.from_numpy(train[1][held_out]).long()
    x_test, y_test = normalised(test[0]), torch.from_numpy(test[1].copy()).long()

    torch.manual_seed(args.seed)
    random.seed(args.seed)
    model = timm.create_model(ARCHITECTURE, num_classes=len(CLASSES), **MODEL_ARGS)
    optims = optimisers(model)
    steps_per_epoch = math.ceil(len(y) / args.batch)
    total = args.epochs * steps_per_epoch
    checkpoint = args.work / "checkpoint.pt"
    log_file = args.work / "training.log"
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for (o, _), s in zip(optims, state["optims"], strict=True):
            o.load_state_dict(s)
        first = state["epoch"]

    def log(line: str) -> None:
        print(line, flush=True)
        with log_file.open("a") as f:
            f.write(line + "\n")

    if not first:
        log(f"{vars(args)} torch {torch.__version__} timm {timm.__version__}, {len(y)} training images")
    for epoch in range(first, args.epochs):
        torch.manual_seed(args.seed * 1000 + epoch)
        random.seed(args.seed * 1000 + epoch)
        started, losses = time.time(), []
        for i, index in enumerate(torch.randperm(len(y)).split(args.batch)):
            t = (epoch * steps_per_epoch + i) / total
            scale = min(1.0, t / 0.05) * max(0.0, (1 - t) / 0.95)  # warm-up, then linear to zero
            for o, peak in optims:
                o.param_groups[0]["lr"] = peak * scale
            shown = augmented(x[index]) if epoch < args.epochs - 1 else x[index]  # the last epoch sees them as they are
            loss = F.cross_entropy(forward(model, shown, args.block_drop), y[index], label_smoothing=0.05)
            loss.backward()
            for o, _ in optims:
                o.step()
            model.zero_grad()
            losses.append(loss.item())
        took, val = time.time() - started, accuracy(model, x_val, y_val)
        log(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.4f}  val {val:.2f}  {took:.0f} s")
        torch.save(
            {"model": model.state_dict(), "optims": [o.state_dict() for o, _ in optims], "epoch": epoch + 1}, checkpoint
        )

    save_file({k: v.half().contiguous() for k, v in model.state_dict().items()}, SHIPPED / "model.safetensors")
    model.load_state_dict(load_file(SHIPPED / "model.safetensors"))
    log(f"fp16 weights: val {accuracy(model, x_val, y_val):.2f}  test {accuracy(model, x_test, y_test):.2f}")
    config = {
        "architecture": ARCHITECTURE,
        "num_classes": len(CLASSES),
        "num_features": MODEL_ARGS["embed_dim"],
        "global_pool": "token",
        "label_names": CLASSES,
        "model_args": MODEL_ARGS,
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [3, 28, 28],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "crop_mode": "center",
            "mean": [MEAN] * 3,
            "std": [STD] * 3,
            "num_classes": len(CLASSES),
            "first_conv": "patch_embed.proj",
            "classifier": "head",
            "license": "apache-2.0",
        },
    }
    (SHIPPED / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (SHIPPED / "training.log").write_text(log_file.read_text())


if __name__ == "__main__":
    main()
