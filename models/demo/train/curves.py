"""Draws the loss curves of both trainings from eval/training.json into curves.png."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend comes first

from world import KINDS  # noqa: E402

HOME = Path(__file__).parent.parent


def smoothed(values, span=5):
    """Running mean."""
    return [sum(values[max(0, i - span + 1): i + 1]) / len(values[max(0, i - span + 1): i + 1]) for i in range(len(values))]


def draw(runs, path):
    """`runs` has the logs `target` (a list of runs, each continuing the last) and `drafter`."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    offset, marks = 0, {k: ([], []) for k in KINDS}
    for n, rows in enumerate(runs["target"]):
        losses = [r for r in rows if "reply_loss" in r]
        steps = [r["step"] + offset for r in losses]
        left.plot(steps, smoothed([r["reply_loss"] for r in losses]), color="C0", label=None if n else "target, replies")
        left.plot(steps, smoothed([r["loss"] for r in losses]), color="C7", lw=1, label=None if n else "target, weighted")
        for row in (r for r in rows if "exact" in r):
            for kind, share in row["exact"].items():
                marks[kind][0].append(row["step"] + offset)
                marks[kind][1].append(share)
        offset += rows[-1]["step"]
        if n + 1 < len(runs["target"]):
            for axis in (left, middle):
                axis.axvline(offset, color="0.8", lw=1)
    left.set(yscale="log", xlabel="step", title="Target: cross-entropy")
    left.legend(frameon=False)
    for kind, (steps, shares) in marks.items():
        middle.plot(steps, shares, marker=".", label=kind)
    middle.set(xlabel="step", title="Held-out replies exact to the token", ylim=(0, 1.02))
    middle.legend(frameon=False, fontsize=8)
    steps = [r["step"] for r in runs["drafter"]]
    right.plot(steps, smoothed([r["loss"] for r in runs["drafter"]]), label="drafter loss")
    right.plot(steps, smoothed([r["mtp_loss"] for r in runs["drafter"]]), label="MTP loss (three passes)")
    right.set(yscale="log", xlabel="step", title="Drafter and MTP head")
    twin = right.twinx()
    twin.plot(steps, smoothed([r["run"] for r in runs["drafter"]]), color="C2")
    twin.set_ylabel("right drafts in a row, of 15", color="C2")
    right.legend(frameon=False, fontsize=8, loc="center right")
    for axis in (left, middle, right):
        axis.spines[["top"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    draw(json.loads((HOME / "eval/training.json").read_text()), HOME / "curves.png")
