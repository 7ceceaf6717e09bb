"""Makes every golden fixture in this folder: `python make.py`, or `python make.py --demo ../../../../models/demo/target`."""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import demo
import folders
import gdn
import hashed
import huggingface
import huggingface_drafter
from drafter import Drafter
from reference import Target

HERE = Path(__file__).resolve().parent
LENGTHS = (1, 3, 63, 64, 65, 150)
LIMIT = 3e-4


def save(name, tensors, report):
    """Writes a fixture whose metadata says how well the two computations agree."""
    tensors = {key: value.contiguous().clone() for key, value in tensors.items()}
    save_file(tensors, HERE / name, metadata={"report": json.dumps(report)})
    print(f"{name}: {(HERE / name).stat().st_size} bytes, {json.dumps(report)}")


def target_goldens(name, seed):
    folder = HERE / name
    model, reference = huggingface.load(folder), Target(folder)
    ids = hashed.token_ids(seed, max(LENGTHS), model.config.vocab_size)
    errors = huggingface.Errors()
    exact = reference.forward(ids)["logits"]
    tensors = {"ids": torch.from_numpy(ids)}
    for n in LENGTHS:
        logits = huggingface.logits(model, ids[:n])
        errors.note("logits", logits, exact[:n])
        tensors[f"logits.{n}"] = logits if n == max(LENGTHS) else logits[-1]
    prompt = ids[: huggingface.STATE_LENGTH]
    tensors |= huggingface.states(model, prompt, reference.forward(prompt), errors)
    tensors |= huggingface.mtp(model, folder, ids, reference, errors)
    assert max(errors.values()) < LIMIT, errors
    save(f"{name}_goldens.safetensors", tensors, {"max difference from float64": errors})


def block_inputs(context, config):
    """Hashed features [context, taps * hidden] and block rows [16, hidden]."""
    taps, hidden = len(config["dflash_config"]["target_layer_ids"]), config["hidden_size"]
    features = hashed.uniform(1000 + context, (context, taps * hidden))
    return features.astype(np.float64), hashed.uniform(2000 + context, (16, hidden)).astype(np.float64)


def f32(array):
    return torch.from_numpy(np.asarray(array)).float()


def drafter_goldens(name, contexts, controls):
    """`controls` maps a name to config changes that must move the output clearly."""
    folder = HERE / name
    drafter = Drafter(folder)
    tensors, moved, errors = {}, {}, huggingface.Errors()
    for context in contexts:
        inputs = block_inputs(context, drafter.config)
        right = drafter.forward(*inputs)
        errors.note(f"ctx{context}", huggingface_drafter.forward(drafter, folder, *inputs), right)
        tensors[f"ctx{context}.out"] = f32(right)
        for control, changes in controls.items():
            wrong = Drafter(folder, **changes).forward(*inputs)
            moved[f"ctx{context}.{control}"] = float(abs(wrong - right).max())
            tensors[f"ctx{context}.{control}"] = f32(wrong)
    assert max(errors.values()) < LIMIT, errors
    assert min(moved.values()) > 100 * LIMIT, moved
    return tensors, {"max difference from Hugging Face parts": errors, "max change by control": moved}


def step_golden(target, drafter):
    """Prompt -> taps of the target -> one draft block -> logits by the target's head, all float64."""
    target, drafter = Target(HERE / target), Drafter(HERE / drafter)
    ids = hashed.token_ids(11, huggingface.STATE_LENGTH, target.config["vocab_size"])
    run = target.forward(ids)
    dflash = drafter.config["dflash_config"]
    features = np.concatenate([run["residuals"][i] for i in dflash["target_layer_ids"]], -1)
    bonus = int(run["logits"][-1].argmax())
    block = [bonus] + [dflash["mask_token_id"]] * (drafter.config["block_size"] - 1)
    out = drafter.forward(features, target.embed[block])
    logits = out[1:] @ target.head.T
    top = np.sort(logits, -1)
    return {
        "step.ids": torch.from_numpy(ids),
        "step.bonus": torch.tensor([bonus]),
        "step.out": f32(out),
        "step.drafts": torch.from_numpy(logits.argmax(-1)),
        "step.gaps": f32(top[:, -1] - top[:, -2]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, metavar="PATH", help="make only demo.safetensors, from this target folder")
    parser.add_argument("--out", type=Path, default=HERE / "demo.safetensors", help="where --demo writes")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    if options.demo:
        tensors, report = demo.goldens(options.demo)
        save(options.out, tensors, report)
        return
    folders.write_target(HERE / "target")
    folders.write_flat(HERE / "target_flat")
    folders.write_wide(HERE / "target_wide")
    folders.write_drafter(HERE / "drafter", folders.DRAFTER, seed=12)
    folders.write_drafter(HERE / "drafter_wide", folders.DRAFTER_WIDE, seed=14)
    folders.write_drafter(HERE / "drafter_variant", folders.DRAFTER_VARIANT, seed=13)
    target_goldens("target", seed=11)
    target_goldens("target_flat", seed=12)
    target_goldens("target_wide", seed=13)
    window = folders.DRAFTER["sliding_window"]
    controls = {"bidirectional": {"sliding_causal": False}, "window_plus_one": {"sliding_window": window + 1}}
    tensors, report = drafter_goldens("drafter", (64, 3000), controls)
    save("drafter_goldens.safetensors", tensors | step_golden("target", "drafter"), report)
    tensors, report = drafter_goldens("drafter_wide", (64,), controls)
    save("drafter_wide_goldens.safetensors", tensors | step_golden("target_wide", "drafter_wide"), report)
    controls = {"bidirectional": {"is_causal": None}, "plain_rope": {"rope_scaling": None}}
    tensors, report = drafter_goldens("drafter_variant", (64,), controls)
    save("drafter_variant_goldens.safetensors", tensors, report)
    tensors, worst = gdn.fixtures()
    save("gdn.safetensors", tensors, {"max difference of recurrent and chunked form": worst})


if __name__ == "__main__":
    main()
