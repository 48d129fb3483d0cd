"""The speedup degradation ratio gamma: what accuracy a gain in speed costs.

Lower is better; a negative one beats the dense model. Two definitions are in use and give different numbers, so each
has a name of its own.
"""


def sdr_gamma(dense_accuracy: float, accuracy: float, speedup: float | None) -> float | None:
    """Relative accuracy loss in % of the dense accuracy per % of throughput gained (Viespoli & Nanni 2026).

    Args:
        dense_accuracy: accuracy of the dense model, in any unit.
        accuracy: accuracy of the pruned model, in the same unit.
        speedup: throughput of the pruned model over that of the dense one; `None` where it was not measured.

    Returns:
        gamma, or `None` where it is undefined: no speedup, or a dense accuracy of 0.
    """
    if dense_accuracy <= 0:
        return None
    return _per_gain(100 * (dense_accuracy - accuracy) / dense_accuracy, speedup)


def sdr_gamma_absolute(dense_accuracy: float, accuracy: float, speedup: float | None) -> float | None:
    """Accuracy loss in points per % of throughput gained (LLM-Drop: He et al. 2026); accuracies in %.

    Returns:
        gamma, or `None` where there is no speedup.
    """
    return _per_gain(dense_accuracy - accuracy, speedup)


def _per_gain(loss: float, speedup: float | None) -> float | None:
    if speedup is None or not speedup > 1:
        return None
    return loss / (100 * (speedup - 1))
