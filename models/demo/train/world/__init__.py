"""The small world the demo pair lives in: a deterministic generator of checkable chats."""

from .dialogue import KINDS, Dialogue, dialogue
from .split import held_out

__all__ = ["KINDS", "Dialogue", "dialogue", "held_out"]
