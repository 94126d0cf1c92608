"""What a dataset of conversations is before it is tokenised: prompts with their answers, each in one split for ever."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from worker.data.documents import Split

PROMPT_FORM: Final = "User: {prompt}\nAssistant:"
"""What a model reads before it answers: plain text, so that every tokenizer has it; turns of one prompt repeat it."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One prompt and the answer that a model should learn to give."""

    prompt: str
    answer: str
    split: Split

    def prompt_text(self) -> str:
        """The prompt as a model reads it."""
        return PROMPT_FORM.format(prompt=self.prompt)

    def answer_text(self) -> str:
        """The answer as a model writes it; an end-of-document token follows."""
        return f" {self.answer}"


class ConversationSource(Protocol):
    """A readable dataset of conversations."""

    version: str
    """What is read, in words: a release, a revision."""
    skipped: int
    """Conversations without a prompt or an answer, counted while `conversations` runs."""

    def conversations(self) -> Iterator[Conversation]:
        """Yield every conversation in a fixed order."""
