"""Which questions are kept for testing."""

import hashlib


def held_out(key):
    """Whether a question is reserved for testing: three in a hundred are, by a hash of their text."""
    return hashlib.blake2b(key.lower().encode(), digest_size=2).digest()[0] % 100 < 3
