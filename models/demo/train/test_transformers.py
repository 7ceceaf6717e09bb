"""Hugging Face transformers loads the committed target and agrees with the training model; run with pytest."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoTokenizer, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration

import checkpoint
import heldout
from data import encode
from rendering import prompt_text
from shapes import TARGET
from target import Mtp, Target

HOME = Path(__file__).parent.parent
FOLDER = HOME / "target"


@pytest.mark.parametrize("kind", [Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration])
def test_logits_agree(kind):
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ours = Target(TARGET)
    checkpoint.load_target(ours, None, FOLDER)
    config = None if kind is Qwen3_5ForConditionalGeneration else kind.config_class(
        **json.loads((FOLDER / "config.json").read_text())["text_config"])
    theirs = kind.from_pretrained(FOLDER, dtype=torch.float32, **({"config": config} if config else {})).eval()
    for chat in heldout.read()[::140]:
        ids = torch.tensor([sum(encode(tokenizer, chat), [])])
        with torch.no_grad():
            mine = ours.logits(ours(ids, torch.arange(ids.shape[1])[None])[0])
            other = theirs(ids).logits
        assert (mine - other).abs().max() < 2e-4 * mine.abs().max().clamp(min=1)


def test_tokenizer_and_template_agree():
    theirs, ours = AutoTokenizer.from_pretrained(FOLDER), Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    for chat in heldout.read()[::70]:
        text = prompt_text(chat.messages, chat.tools, chat.thinking)
        assert text == theirs.apply_chat_template(
            chat.messages, tools=chat.tools or None, add_generation_prompt=True, enable_thinking=chat.thinking, tokenize=False)
        assert theirs(text).input_ids == ours.encode(text, add_special_tokens=False).ids


def test_stored_types_and_size():
    with safe_open(FOLDER / "model.safetensors", "pt") as f:
        types = {name: f.get_tensor(name).dtype for name in f.keys()}
    for name, dtype in types.items():
        single = name.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))
        assert dtype == (torch.float32 if single else torch.bfloat16), name
    assert sum(name.startswith("mtp.") for name in types) == len(Mtp(TARGET).state_dict()) == 15
    size = sum(f.stat().st_size for folder in ("target", "drafter") for f in (HOME / folder).iterdir())
    assert size <= 20_000_000
