"""Remakes the demo pair: tokenizer, held-out chats, target, drafter and MTP head, evaluation, curves.

    python make.py            on a GPU, about a quarter of an hour

The committed tokenizer is kept if it is there, since stored weights depend on its ids.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import curves
import heldout
import tokenizer

HERE = Path(__file__).parent
HOME = HERE.parent


def run(script, *options):
    """Runs one stage as its own process, so that its memory is free for the next."""
    subprocess.run([sys.executable, str(HERE / script), *options], check=True)


def main():
    """All stages in order."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target-steps", type=int, default=3700)
    p.add_argument("--drafter-steps", type=int, default=1550)
    args = p.parse_args()
    if not (HOME / "target/tokenizer.json").exists():
        tokenizer.save(tokenizer.build(), HOME / "target")
    heldout.write()
    run("train_target.py", "--steps", str(args.target_steps))
    run("train_drafter.py", "--steps", str(args.drafter_steps))
    run("evaluate.py")
    logs = [HOME / f"{name}_log.json" for name in ("target", "drafter")]
    target, drafter = (json.loads(log.read_text()) for log in logs)
    runs = {"target": [target], "drafter": drafter}
    (HOME / "eval/training.json").write_text(json.dumps(runs, separators=(",", ":")) + "\n")
    curves.draw(runs, HOME / "curves.png")
    for log in logs:
        log.unlink()


if __name__ == "__main__":
    main()
