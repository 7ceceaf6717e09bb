"""One exchange of a chat: what the user says and the single right reply to it."""

from dataclasses import dataclass, field


@dataclass
class Turn:
    """`prompt` holds the messages up to the reply; `expect` is the machine-checkable answer.

    The reply is a function of the prompt alone, so that a greedy draft can be right.
    `key` is the text by which training and held-out chats are kept apart; `shown` says that
    the working belongs in the content when the model does not think.
    """

    prompt: list
    reasoning: str
    content: str
    expect: dict
    calls: list = field(default_factory=list)
    tools: list = field(default_factory=list)
    key: str = ""
    facts: dict = field(default_factory=dict)
    shown: bool = False

    def __post_init__(self):
        if not self.key:
            self.key = "\n".join(m["content"] for m in self.prompt if m["role"] == "user")

    def reply(self, thinking):
        """The assistant message; without thinking its reasoning is empty."""
        content = self.content
        if self.shown and not thinking:
            content = f"{self.reasoning}\n{content}"
        message = {"role": "assistant", "content": content}
        message["reasoning_content"] = self.reasoning if thinking else ""
        if self.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": args}}
                for name, args in self.calls
            ]
        return message


def user(text):
    """A user message."""
    return {"role": "user", "content": text}
