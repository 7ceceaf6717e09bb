"""What both trainings share: pace, optimiser, compilation and the log."""

import contextlib
import json
import time

import torch


def device():
    """The GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def lowered(where):
    """bf16 autocast on a GPU, nothing on a CPU."""
    return torch.autocast("cuda", torch.bfloat16) if where.type == "cuda" else contextlib.nullcontext()


def optimiser(modules, rate):
    """AdamW; matrices decay, vectors do not."""
    parameters = [p for m in modules for p in m.parameters()]
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.05},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=parameters[0].is_cuda)


class Pace:
    """Progress from 0 to 1 by steps or by minutes, whichever ends first, and the learning rate that follows it."""

    def __init__(self, steps, minutes, rate):
        self.steps, self.minutes, self.rate = steps, minutes, rate
        self.step, self.start = 0, time.time()

    @property
    def elapsed(self):
        """Seconds since the start."""
        return time.time() - self.start

    @property
    def progress(self):
        """Share of the training done."""
        return max(self.step / self.steps, self.elapsed / 60 / self.minutes if self.minutes else 0)

    def advance(self, optim):
        """Counts a step and sets the rate: short warm-up, level, then a straight line to zero."""
        self.step += 1
        p = min(self.progress, 1)
        now = self.rate * min(1, self.step / 150) * min(1, (1 - p) / 0.6)
        for group in optim.param_groups:
            group["lr"] = max(now, 1e-6)


class Log:
    """Rows of numbers for the curves; printed as they come."""

    def __init__(self):
        self.rows = []

    def add(self, **row):
        """Keeps and prints one row."""
        row = {k: round(float(v), 5) if not isinstance(v, (dict, str)) else v for k, v in row.items()}
        self.rows.append(row)
        print(json.dumps(row), flush=True)


def compile_if_faster(layers, once):
    """Compiles the layers in place and keeps that only if `once()` (one training step) then runs faster."""
    def timed(warm):
        for _ in range(warm):
            once()
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(5):
            once()
        torch.cuda.synchronize()
        return (time.time() - start) / 5

    plain, fused, began = timed(3), float("inf"), time.time()
    try:
        for layer in layers:
            layer.compile(dynamic=False)
        fused = timed(3)
    except Exception as error:
        print("compilation failed:", repr(error)[:300], flush=True)
    if fused > plain:
        for layer in layers:
            layer._compiled_call_impl = None
    print(f"one step: plain {plain * 1e3:.1f} ms, compiled {fused * 1e3:.1f} ms "
          f"(after {time.time() - began:.0f} s)", flush=True)
