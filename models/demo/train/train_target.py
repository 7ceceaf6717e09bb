"""Trains the target on packed chats; the loss lies mainly on replies."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import checkpoint
import heldout
from data import PAD, REPLY, loader
from evaluate import exact_share
from fit import Log, Pace, compile_if_faster, device, lowered, optimiser
from shapes import TARGET
from target import Target

HOME = Path(__file__).parent.parent
ELSEWHERE = 0.1


def loss_of(target, batch):
    """(loss, loss on replies) of predicting each next token of the same chat."""
    hidden, _ = target(batch.ids, batch.positions)
    scores = target.logits(hidden[:, :-1]).float().flatten(0, 1)
    each = F.cross_entropy(scores, batch.ids[:, 1:].flatten(), reduction="none")
    part, inside = batch.part[:, 1:].flatten(), (batch.positions[:, 1:] > 0).flatten()
    reply = ((part == REPLY) & inside).float()
    other = ((part != REPLY) & (part != PAD) & inside).float()
    loss = (each * (reply + ELSEWHERE * other)).sum() / (reply + ELSEWHERE * other).sum()
    return loss, (each * reply).sum() / reply.sum()


def stored(target, where):
    """A copy of the target with weights as they will be stored, in bf16."""
    copy = Target(target.shape).to(where)
    copy.load_state_dict({n: p.detach().to(torch.bfloat16).float() for n, p in target.state_dict().items()})
    return copy


def train(args):
    """Runs the training and writes the target folder and its log."""
    where = device()
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(HOME / "target/tokenizer.json"))
    chats = heldout.read()[:: args.every]
    target = Target(TARGET).to(where)
    if args.resume:
        checkpoint.load_target(target, None, args.resume)
    optim = optimiser([target], args.rate)
    batches = loader(tokenizer, f"target {args.seed}", args.rows, args.width, args.workers)

    def gradients(batch):
        with lowered(where):
            loss, reply = loss_of(target, batch)
        loss.backward()
        return loss.detach(), reply.detach()

    if where.type == "cuda" and args.compile:
        sample = next(batches).to(where)
        compile_if_faster(target.layers, lambda: gradients(sample))
        optim.zero_grad()
    pace, log, marks = Pace(args.steps, args.minutes, args.rate), Log(), 0
    while pace.progress < 1:
        batch = next(batches).to(where)
        loss, reply = gradients(batch)
        norm = torch.nn.utils.clip_grad_norm_(target.parameters(), 1.0)
        pace.advance(optim)
        optim.step()
        optim.zero_grad()
        if pace.step % 25 == 0 or pace.step <= 3:
            log.add(step=pace.step, seconds=pace.elapsed, loss=loss, reply_loss=reply, norm=norm, rate=optim.param_groups[0]["lr"])
        if pace.progress >= (marks + 1) / 8:
            marks = int(pace.progress * 8)
            log.add(step=pace.step, seconds=pace.elapsed, exact=exact_share(stored(target, where), tokenizer, chats))
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint.save_target(target, None, tokenizer, args.out / "target")
    final = stored(target, where)
    log.add(step=pace.step, seconds=pace.elapsed, exact=exact_share(final, tokenizer, heldout.read()))
    (args.out / "target_log.json").write_text(json.dumps(log.rows))


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, default=HOME)
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--minutes", type=float, default=0, help="stop by time as well")
    p.add_argument("--rows", type=int, default=42)
    p.add_argument("--width", type=int, default=1536, help="tokens per row")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    p.add_argument("--seed", default="0")
    p.add_argument("--every", type=int, default=2, help="held-out chats used for the curve: every n-th")
    p.add_argument("--resume", type=Path, help="start from a stored target")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return p.parse_args()


if __name__ == "__main__":
    train(arguments())
