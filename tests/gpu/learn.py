"""That it learns."""

import host
import models


def learns():
    found = models.losses(600, "cuda", "bf16")
    if not found[-1] < 0.7 * found[0]:
        raise host.Failed(f"the loss went from {found[0]:.3f} to {found[-1]:.3f}")
    return f"600 steps: loss {found[0]:.3f} -> {found[-1]:.3f}"


PARTS = [("a small GPT learns", learns)]
