"""Checks that need no training: run with pytest in this folder."""

import random

import pytest
import torch

import check
import gdn
from drafter import Drafter, block_ids
from rendering import prompt_text, split_text
from shapes import DRAFTER, TARGET, TargetShape
from spec_loop import generate
from target import Target
from world import KINDS, dialogue, held_out

SMALL = TargetShape(vocab=64, layers=4)


def recurrent(q, k, v, g, beta):
    """The gated delta rule one token at a time."""
    q, k = gdn.l2norm(q) * q.shape[-1] ** -0.5, gdn.l2norm(k)
    state, out = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3]), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        fresh = beta[:, t][..., None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], fresh)
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(out, 1)


@pytest.mark.parametrize("length", [1, 63, 64, 150])
def test_chunks_equal_recurrence(length):
    torch.manual_seed(length)
    q, k, v = (torch.randn(2, length, 3, 16) for _ in range(3))
    g, beta = -torch.rand(2, length, 3), torch.rand(2, length, 3)
    assert torch.allclose(gdn.gated_delta_rule(q, k, v, g, beta), recurrent(q, k, v, g, beta), atol=1e-5)


def test_packed_chats_do_not_see_each_other():
    torch.manual_seed(0)
    model = Target(SMALL)
    first, second = torch.randint(64, (1, 70)), torch.randint(64, (1, 50))
    at = torch.cat([torch.arange(70), torch.arange(50)])[None]
    packed = model(torch.cat([first, second], 1), at)[0]
    alone = model(second, torch.arange(50)[None])[0]
    assert torch.allclose(packed[:, 70:], alone, atol=1e-4)


def test_drafting_changes_no_greedy_text():
    torch.manual_seed(0)
    target, drafter = Target(TARGET), Drafter(DRAFTER)
    prompts = [torch.randint(2048, (n,)).tolist() for n in (5, 40, 171)]
    plain, _ = generate(target, None, prompts, 1, 0, limit=12)
    drafted, _ = generate(target, drafter, prompts, 1, 0, limit=12)
    assert [t[:12] for t in drafted] == [t[:12] for t in plain]


def test_block_sees_only_its_context():
    torch.manual_seed(0)
    drafter, t = Drafter(DRAFTER), 300
    tapped, at = torch.randn(1, t, 1280), torch.arange(t)[None]
    anchors = torch.tensor([[200, 250]])
    table = torch.randn(2048, 256)
    embedded = table[block_ids(torch.randint(2048, (1, t)), anchors, 16, 7)]
    both = drafter(tapped, embedded, at, anchors)
    changed = tapped.clone()
    changed[:, 200:] += 1
    alone = drafter(changed, embedded[:, :16], at, anchors[:, :1])
    assert torch.allclose(both[:, :16], alone, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_replies_are_right_and_splits_apart(kind):
    for i in range(40):
        chat = dialogue(random.Random(f"test {kind} {i}"), kind, test=i % 2 == 0)
        prompt, reply = split_text(chat)
        assert prompt == prompt_text(chat.messages, chat.tools, chat.thinking)
        assert check.right(reply.removesuffix("<|im_end|>"), chat)
        assert not check.right("I say something else.", chat)
        assert chat.messages == dialogue(random.Random(f"test {kind} {i}"), kind, test=i % 2 == 0).messages
        if kind in ("arithmetic", "python", "facts", "tools", "chat"):
            assert held_out(chat.messages[-1]["content"]) == (i % 2 == 0)
