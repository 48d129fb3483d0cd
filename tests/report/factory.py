"""A believable selection of a 12-block model, made of nothing."""

import math
from typing import Any

from serpette.records import (
    PARTS,
    Baseline,
    Candidate,
    ClassScore,
    Cost,
    DataRef,
    HeadFit,
    Method,
    ModelRef,
    Part,
    Plan,
    Preprocessing,
    Profile,
    Provenance,
    Scores,
    Selection,
    SiteScore,
    WindowScore,
    Winner,
)

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
GFLOPS = 2.51
SHARE = {"attention": 0.0297, "mlp": 0.0517}  # of the FLOPs, per sublayer


def model(name: str = "timm:vit_tiny_patch16_224", depth: int = 12) -> ModelRef:
    return ModelRef(
        name=name,
        library="timm",
        family="vit",
        architecture="vit_tiny_patch16_224",
        depth=depth,
        image_size=224,
        weights="3f9ac0117be2d684",
    )


def data(split: str = "test", n: int = 1000, classes: tuple[str, ...] = CLASSES, **more: Any) -> DataRef:
    fields = {"n_bad": 0, "fingerprint": f"{split}-5b1e77c0", **more}
    return DataRef(name="fashion-mnist", split=split, classes=classes, n=n, **fields)


def provenance() -> Provenance:
    return Provenance(
        serpette="0.1.0",
        python="3.11.2",
        torch="2.11.0",
        timm="1.0.24",
        transformers="5.4.0",
        device="cpu (AMD EPYC 9V74, 2 cores)",
        dtype="float32",
        attention_backend="sdpa",
        threads=2,
        seed=0,
        created="2026-02-11T09:14:05Z",
    )


def cosine(block: int, part: Part, depth: int = 12) -> float:
    """Early blocks work hardest; the attention of late blocks does little."""
    place = block / (depth - 1)
    scale = {"block": 1.0, "attention": 0.35, "mlp": 0.6}[part]
    ripple = 1 + 0.35 * math.sin(2.3 * block + len(part))
    return 1 - scale * ripple * (0.30 * math.exp(-4.5 * place) + 0.012 + 0.05 * place**6)


def site(block: int, part: Part, depth: int = 12) -> SiteScore:
    value = cosine(block, part, depth)
    return SiteScore(
        block=block,
        part=part,
        cosine=value,
        cosine_low=value - 0.002,
        cosine_high=min(1.0, value + 0.002),
        angular=math.acos(value) / math.pi,
        relative_norm=math.sqrt(1 - value**2),
        cka=value**0.5,
    )


def profile(name: str = "timm:vit_tiny_patch16_224", depth: int = 12, unranked: int | None = None) -> Profile:
    sites = [site(block, part, depth) for part in PARTS for block in range(depth)]
    if unranked is not None:
        sites[unranked] = sites[unranked].model_copy(update={"nonfinite_tokens": 7})
    return Profile(
        model=model(name, depth),
        data=data("train", 512),
        provenance=provenance(),
        tokens="all",
        images=512,
        depth=depth,
        sites=tuple(sites),
        windows=(WindowScore(start=4, length=2, cosine=0.93),),
        stability={"block": 0.94, "attention": 0.88, "mlp": 1.0},
    )


def plan(method: Method, drop: int) -> Plan:
    def ranked(*parts: Part) -> list[tuple[int, Part]]:
        return sorted(((b, p) for p in parts for b in range(12)), key=lambda s: cosine(*s), reverse=True)[:drop]

    sites: list[tuple[int, Part]]
    if method == "deepest":
        sites = [(11 - i, "block") for i in range(drop)]
    elif method == "contiguous":
        sites = [(5 + i, "block") for i in range(drop)]
    elif method == "joint":
        sites = ranked("attention", "mlp")
    else:
        sites = ranked("block" if method == "block" else "attention" if method == "attention" else "mlp")
    removed = {part: tuple(block for block, kind in sites if kind == part) for part in PARTS}
    return Plan(
        drop_blocks=removed["block"],
        drop_attention=removed["attention"],
        drop_mlp=removed["mlp"],
        method=method,
        drop=drop,
        depth=12,
    )


def candidate(method: Method, drop: int) -> Candidate:
    chosen = plan(method, drop)
    lost = sum(1 - cosine(block, part) for block, part in chosen.sites)
    saved = sum(SHARE["attention"] + SHARE["mlp"] if part == "block" else SHARE[part] for _, part in chosen.sites)
    accuracy = 10 + 81.2 / (1 + math.exp(14 * (lost - 0.34))) - 0.9 * (drop % 2) * (method == "mlp")
    return Candidate(
        method=method,
        drop=drop,
        plan=chosen,
        validation_top1=round(accuracy, 2),
        gflops=GFLOPS * (1 - saved),
        gflops_reduction=100 * saved,
    )


def scores(name: str, top1: float, shift: float, classes: tuple[str, ...] = CLASSES, n: int = 1000) -> Scores:
    right = round(n * top1 / 100)
    moved = 9 if shift else 0
    return Scores(
        model=model(name),
        data=data("test", n, classes),
        provenance=provenance(),
        head="refit",
        fit=HeadFit(method="logistic", strength=0.01, n_train=4000, n_validation=1000, validation_top1=91.0),
        n=n,
        n_bad=0,
        top1=top1,
        top5=99.1,
        top_k=5,
        balanced_accuracy=top1 - 0.1,
        macro_precision=top1 + 0.1,
        macro_recall=top1 - 0.1,
        macro_f1=top1 - 0.2,
        majority_baseline=10.0,
        per_class=tuple(
            ClassScore(
                name=c, n=n // len(classes), recall=90 - 2.2 * (i % 5) - shift * ((i * 7) % 10 - 3), precision=90
            )
            for i, c in enumerate(classes)
        ),
        correct=(*[False] * moved, *[True] * right, *[False] * (n - right - moved)),
    )


def cost(name: str = "timm:vit_tiny_patch16_224", speed: float = 61.2, work: float = 1.0, **more: Any) -> Cost:
    fields = {
        "energy_j_per_image": None,
        "energy_note": "no counter: /sys/class/powercap is not readable on this machine",
        **more,
    }
    return Cost(
        model=model(name),
        provenance=provenance(),
        infer_samples_per_sec=speed,
        infer_samples_per_sec_low=speed * 0.985,
        infer_samples_per_sec_high=speed * 1.011,
        infer_step_time=64000 / speed,
        infer_batch_size=64,
        infer_img_size=224,
        latency_ms=1100 / speed,
        latency_ms_low=1080 / speed,
        latency_ms_high=1150 / speed,
        infer_gflops=GFLOPS * work,
        infer_gmacs=GFLOPS * work / 2,
        param_count=5.72 * work,
        peak_memory_mb=412.0,
        memory_note="resident set",
        checkpoint_mb=21.8 * work,
        repeats=15,
        **fields,
    )


def comparison(speedup: float = 1.18, name: str = "timm:vit_tiny_patch16_224") -> Cost:
    ends = {"speedup": speedup, "speedup_low": speedup - 0.03, "speedup_high": speedup + 0.03}
    saved = {"gflops_reduction": 15.0, "param_reduction": 15.0, "baseline": cost(name)}
    return cost(name, 61.2 * speedup, 0.85, **ends, **saved)


def selection(
    name: str = "timm:vit_tiny_patch16_224",
    classes: tuple[str, ...] = CLASSES,
    method: Method | None = "joint",
    drop: int = 5,
    speedup: float = 1.18,
    note: str = "",
) -> Selection:
    """A finished selection; `method=None` makes the baseline win."""
    methods: tuple[Method, ...] = ("block", "attention", "mlp", "joint", "contiguous", "deepest")
    candidates = [candidate(m, d) for m in methods for d in (1, 2, 3, 4, 5, 6)]
    failed = candidates[-1]
    candidates[-1] = Candidate(
        method=failed.method,
        drop=failed.drop,
        plan=failed.plan,
        validation_top1=None,
        gflops=None,
        gflops_reduction=None,
        error="NaN in the logits of 3 images",
    )
    best = candidate(method, drop) if method else None
    compared = comparison(speedup if best else 1.0, name)
    reduction = (best and best.gflops_reduction) or 0.0
    work = 1 - reduction / 100
    pruned = cost(name, 61.2 * speedup, work, speedup=speedup, speedup_low=speedup - 0.03, speedup_high=speedup + 0.03)
    test = 90.2 if best else 90.6
    return Selection(
        model=model(name),
        preprocessing=Preprocessing(image_size=224, resize=248, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        data={
            "train": data("train", 4000, classes, n_bad=2, bad=("train/bag/0017.png", "train/<b>coat</b>/3.png")),
            "val": data("val", 1000, classes, notes=("stratified split 70:15:15, seed 0",)),
            "test": data("test", 1000, classes),
        },
        provenance=provenance(),
        head="refit",
        rule="The highest validation accuracy wins, within 0.5 points the larger reduction of FLOPs.",
        profile=profile(name),
        baseline=Baseline(validation_top1=91.0, test_top1=90.6, gflops=GFLOPS),
        candidates=tuple(candidates),
        winner=Winner(
            method=best.method if best else "baseline",
            drop=best.drop if best else 0,
            plan=best.plan if best else Plan(depth=12),
            validation_top1=(best and best.validation_top1) or 91.0,
            test_top1=test,
            gflops_reduction=reduction,
            speedup=speedup if best else 1.0,
            speedup_note=note,
        ),
        baseline_scores=scores(name, 90.6, 0.0, classes),
        winner_scores=scores(name, test, 0.5 if best else 0.0, classes),
        baseline_cost=compared.baseline,
        winner_cost=pruned if best else compared.baseline,
        seconds=143.2,
        saved_as="serpette",
        load_with='import serpette\n\nmodel = serpette.load("runs/demo/model")',
    )
