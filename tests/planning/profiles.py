"""Small profiles made of given numbers."""

from collections.abc import Sequence

from serpette.records import PARTS, DataRef, ModelRef, Profile, Provenance, SiteScore, WindowScore

MODEL = ModelRef(name="m", library="timm", family="vit", architecture="m", depth=0, image_size=8, weights="0" * 16)
DATA = DataRef(name="d", split="train", fingerprint="f", classes=("a", "b"), n=4, n_bad=0)
PROVENANCE = Provenance(
    serpette="0", python="3", torch="2", timm="1", transformers="5", device="cpu", dtype="fp32",
    attention_backend="sdpa:math", threads=1, seed=0, created="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def profile(
    block: Sequence[float | None],
    attention: Sequence[float | None] | None = None,
    mlp: Sequence[float | None] | None = None,
    windows: dict[tuple[int, int], float | None] | None = None,
    nonfinite: Sequence[int] = (),
) -> Profile:
    """A profile with these cosines; `windows` by (start, length); all sites of the blocks in `nonfinite` have NaN."""
    depth = len(block)
    cosines = dict(zip(PARTS, (block, attention or block, mlp or block), strict=True))
    nothing = dict.fromkeys(("cosine_low", "cosine_high", "angular", "relative_norm", "cka"))
    return Profile(
        model=MODEL.model_copy(update={"depth": depth}),
        data=DATA,
        provenance=PROVENANCE,
        tokens="all",
        images=4,
        depth=depth,
        sites=tuple(
            SiteScore(block=i, part=part, cosine=cosines[part][i], nonfinite_tokens=int(i in nonfinite), **nothing)
            for part in PARTS
            for i in range(depth)
        ),
        windows=tuple(WindowScore(start=s, length=n, cosine=c) for (s, n), c in (windows or {}).items()),
        stability={"block": None, "attention": None, "mlp": None},
    )
