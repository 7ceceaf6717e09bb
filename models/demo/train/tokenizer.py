"""The demo tokenizer: byte-level BPE in the family's form, trained on rendered chats."""

import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from rendering import split_text
from world import KINDS, dialogue

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
).split()
AUDIO = "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>".split()
ADDED = [(t, True) for t in SPECIAL] + [(t, False) for t in PLAIN] + [(t, True) for t in AUDIO]
TOTAL = 2000
PADDED = 2048


def corpus(count):
    """Texts of training chats, with the added tokens cut out."""
    for i in range(count):
        chat = dialogue(random.Random(f"tokenizer {i}"), KINDS[i % len(KINDS)])
        text = "".join(split_text(chat))
        for token, _ in ADDED:
            text = text.replace(token, "\n\n")
        yield text


def build(count=12000):
    """Trains the tokenizer: base vocabulary first, then the 33 added tokens in the family's order."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=TOTAL - len(ADDED), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(corpus(count), trainer)
    base = tokenizer.get_vocab_size()
    for token, special in ADDED:
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=special)])
    assert tokenizer.token_to_id("<|endoftext|>") == base, "added tokens follow the base vocabulary"
    return tokenizer


def config(tokenizer):
    """tokenizer_config.json in the family's form."""
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    decoder = {str(tokenizer.token_to_id(t)): {"content": t, **flags, "special": s} for t, s in ADDED}
    return {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": decoder, "bos_token": None,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 4096,
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }


def save(tokenizer, folder):
    """Writes tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
    (folder / "tokenizer_config.json").write_text(json.dumps(config(tokenizer), indent=1))
