"""Goldens of a trained target folder: the last rows of logits of three rendered chats."""

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import hashed
import huggingface
import weights
from reference import Target

ROWS = 8
CHATS = (
    [
        {"role": "system", "content": "You are a careful assistant. Think step by step and then give only the number, without a unit."},
        {"role": "user", "content": "I bought 12 apples and then 30 more, and I gave 5 of them away. How many are left?"},
    ],
    [
        {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
        {"role": "user", "content": "Hello! What can you do?"},
        {"role": "assistant", "content": "I can do arithmetic, write small Python functions and call tools."},
        {"role": "user", "content": "Write a Python function that returns the sum of a list of numbers."},
    ],
    [
        {"role": "user", "content": "Compute 7 * 8."},
        {"role": "assistant", "content": "7 * 8 = 56."},
        {"role": "user", "content": "Now subtract 6 from that."},
        {"role": "assistant", "content": "56 - 6 = 50."},
        {"role": "user", "content": "Divide that by 5, and write a Python function that does all three steps for any pair."},
        {
            "role": "assistant",
            "content": "50 / 5 = 10.\n\n```python\ndef steps(a, b):\n    product = a * b\n    rest = product - 6\n"
            "    return rest / 5\n\n\nprint(steps(7, 8))\n```\n\nThe call prints 10.0, because the division gives a float.",
        },
        {"role": "user", "content": "Is the result even? Say yes or no, and then list all of its divisors in order."},
    ],
)


def rendered(folder):
    """The chats as ids; a folder without a tokenizer gets hashed ids of like lengths."""
    path = folder / "tokenizer.json"
    if not path.exists():
        vocab = weights.text_config(folder)["vocab_size"]
        return [hashed.token_ids(30 + i, n, vocab) for i, n in enumerate((60, 150, 300))]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(path)))
    template = (folder / "chat_template.jinja").read_text()
    texts = [
        tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=True)
        for chat in CHATS
    ]
    return [np.array(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]


def goldens(folder):
    """Returns (tensors, report)."""
    model, reference = huggingface.load(folder), Target(folder)
    tensors, errors = {}, huggingface.Errors()
    for i, ids in enumerate(rendered(folder)):
        assert 60 <= len(ids) <= 300, f"chat {i} has {len(ids)} tokens"
        logits = huggingface.logits(model, ids)[-ROWS:]
        errors.note("logits", logits, reference.forward(ids)["logits"][-ROWS:])
        tensors |= {f"chat{i}.ids": torch.from_numpy(ids), f"chat{i}.logits": logits}
    return tensors, {"max difference from float64": errors}
