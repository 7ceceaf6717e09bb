"""Trains the DFlash drafter and the MTP head on a frozen target, embeddings and head shared with it."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import checkpoint
from data import PAD, REPLY, loader
from drafter import Drafter, block_ids
from fit import Log, Pace, compile_if_faster, device, lowered, optimiser
from shapes import DRAFTER, TARGET
from target import Mtp, Target, chat_mask

HOME = Path(__file__).parent.parent
GAMMA = 7.0
MTP_PASSES = (1.0, 0.5, 0.25)


def choose_anchors(batch, count):
    """`count` anchors per row [B, count], drawn among reply tokens whose next token is one too."""
    reply = batch.part == REPLY
    following = F.pad(reply[:, 1:] & (batch.positions[:, 1:] > 0), (0, 1))
    return torch.multinomial((reply & following).float() + 1e-9, count, replacement=True)


def drafter_loss(target, drafter, batch, tapped, anchors, mask_id):
    """(loss, share of right drafts, mean run of right drafts); slot k predicts the token k after the anchor."""
    n = drafter.shape.block
    embedded = target.embed_tokens(block_ids(batch.ids, anchors, n, mask_id))
    hidden = drafter(tapped, embedded, batch.positions, anchors).unflatten(1, (-1, n))[:, :, 1:]
    slot = torch.arange(1, n, device=anchors.device)
    index = anchors[..., None] + slot
    inside = index < batch.ids.shape[1]
    index = index.clamp(max=batch.ids.shape[1] - 1)

    def at(values):
        return values[:, None].expand(-1, anchors.shape[1], -1).gather(2, index)

    labels = at(batch.ids)
    same = at(batch.positions) == batch.positions.gather(1, anchors)[..., None] + slot
    valid = inside & same & (at(batch.part) == REPLY) & (batch.part.gather(1, anchors) == REPLY)[..., None]
    scores = target.logits(hidden).float()
    each = F.cross_entropy(scores.flatten(0, 2), labels.flatten(), reduction="none").view_as(labels)
    weight = valid * torch.exp(-(slot - 1) / GAMMA)
    hit = (scores.argmax(-1) == labels) & valid
    run = hit.long().cumprod(-1).sum(-1)[valid.all(-1)].float().mean()
    return (each * weight).sum() / weight.sum(), hit.sum() / valid.sum(), run


def mtp_loss(target, mtp, batch, hidden):
    """(loss, right shares per pass): each pass feeds the last one's output on, as chained drafts do."""
    embedded = target.embed_tokens(batch.ids.roll(-1, 1))
    mask, labels = chat_mask(batch.positions), batch.ids.roll(-2, 1)
    inside = F.pad((batch.positions[:, 2:] > 1), (0, 2))
    part = batch.part.roll(-2, 1)
    reply = (inside & (part == REPLY)).float()
    weight = reply + 0.1 * (inside & (part != REPLY) & (part != PAD))
    total, shares = 0, []
    for scale in MTP_PASSES:
        made = mtp(embedded, hidden, batch.positions, mask)
        scores = target.logits(made).float()
        each = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        total = total + scale * (each * weight).sum() / weight.sum()
        shares.append(((scores.argmax(-1) == labels) * reply).sum() / reply.sum())
        hidden = made.roll(1, 1)
    return total, shares


def train(args):
    """Runs the training and writes both folders and the log."""
    where = device()
    torch.manual_seed(1)
    target, mtp, drafter = Target(TARGET).to(where), Mtp(TARGET).to(where), Drafter(DRAFTER).to(where)
    tokenizer = Tokenizer.from_file(str(HOME / "target/tokenizer.json"))
    checkpoint.load_target(target, mtp, args.target)
    if args.resume:
        checkpoint.load_drafter(drafter, args.resume)
    target.requires_grad_(False)
    mask_id = tokenizer.token_to_id("<|audio_start|>")
    optim = optimiser([drafter, mtp], args.rate)
    batches = loader(tokenizer, f"drafter {args.seed}", args.rows, args.width, args.workers)

    def gradients(batch):
        with lowered(where):
            with torch.no_grad():
                hidden, tapped = target(batch.ids, batch.positions, DRAFTER.taps)
            anchors = choose_anchors(batch, args.anchors)
            loss, share, run = drafter_loss(target, drafter, batch, tapped, anchors, mask_id)
            ahead, shares = mtp_loss(target, mtp, batch, hidden)
        (loss + ahead).backward()
        return loss.detach(), share, run, ahead.detach(), shares

    if where.type == "cuda" and args.compile:
        sample = next(batches).to(where)
        compile_if_faster([*target.layers, *drafter.layers, *mtp.layers], lambda: gradients(sample))
        optim.zero_grad()
    pace, log = Pace(args.steps, args.minutes, args.rate), Log()
    while pace.progress < 1:
        loss, share, run, ahead, shares = gradients(next(batches).to(where))
        for module in (drafter, mtp):
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        pace.advance(optim)
        optim.step()
        optim.zero_grad()
        if pace.step % 25 == 0 or pace.step <= 3:
            log.add(step=pace.step, seconds=pace.elapsed, loss=loss, right=share, run=run, mtp_loss=ahead,
                    **{f"mtp_right_{i + 1}": s for i, s in enumerate(shares)})
    checkpoint.save_target(target, mtp, tokenizer, args.out / "target")
    checkpoint.save_drafter(drafter, TARGET, tokenizer, args.out / "drafter")
    (args.out / "drafter_log.json").write_text(json.dumps(log.rows))


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, default=HOME)
    p.add_argument("--target", type=Path, default=HOME / "target", help="folder of the trained target")
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--minutes", type=float, default=0, help="stop by time as well")
    p.add_argument("--rows", type=int, default=32)
    p.add_argument("--width", type=int, default=1536, help="tokens per row")
    p.add_argument("--anchors", type=int, default=64, help="blocks per row")
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    p.add_argument("--seed", default="0")
    p.add_argument("--resume", type=Path, help="start from a stored drafter")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return p.parse_args()


if __name__ == "__main__":
    train(arguments())
