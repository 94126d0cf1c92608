"""Texts that the model writes at evaluations, for people to read: the same prompts and seeds every time.

Training does not notice: weights are read, sampling has generators of its own (`generation.py`), and a compiled
model answers uncompiled, since texts have other shapes than batches.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import torch
from torch import nn

from worker.catalog.datasets import DataKind, folder_name
from worker.data.batches import prompt_rows
from worker.data.conversations import PROMPT_FORM
from worker.data.manifest import TOKENIZER_FILE
from worker.data.tokenizers import BpeTokenizer, ByteTokenizer, Tokenizer, tokenizer_file
from worker.records.result import LONGEST_SAMPLE, SampledText, TextSamples
from worker.spec.run import RunSpec
from worker.tasks.generation import generate

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel


class SampleWriter:
    """Has a model go on from the prompts of a specification."""

    def __init__(self, spec: RunSpec, dataset_folder: Path) -> None:
        """The data are prepared. Raises `DataError` if their tokenizer cannot be had."""
        settings, data = spec.workload.evaluation.samples, spec.workload.data
        assert settings is not None
        self._asked = settings
        self._tokenizer: Tokenizer = ByteTokenizer()
        if data.tokenizer != "byte":  # its file lies beside prepared data, but for conversations
            path = dataset_folder / folder_name(data.dataset, data.tokenizer) / TOKENIZER_FILE
            file = path if path.exists() else tokenizer_file(data.tokenizer, None)
            self._tokenizer = BpeTokenizer(file, name=data.tokenizer)
        self._is_compiled = spec.workload.execution.compile
        answers = spec.workload.task.data_kind is DataKind.CONVERSATIONS
        written = [PROMPT_FORM.format(prompt=prompt) if answers else prompt for prompt in settings.prompts]
        most_tokens = data.sequence_length_tokens - settings.tokens
        encoded = [tokens[:-1][-most_tokens:] for tokens in self._tokenizer.encode(written)]
        self._prompts, self._mask = prompt_rows(encoded, max(map(len, encoded)))

    @torch.no_grad()
    def write(self, model: nn.Module, step: int) -> TextSamples:
        """Return the texts of the language model, on its device, after so many steps; it is left in its mode."""
        settings, was_training = self._asked, model.training
        writing = cast("PreTrainedModel", model)
        model.eval()
        try:
            with torch.compiler.set_stance("force_eager") if self._is_compiled else nullcontext():
                answers = generate(
                    writing,
                    self._prompts.to(writing.device),
                    self._mask.to(writing.device),
                    most_tokens=settings.tokens,
                    end_of_text=self._tokenizer.end_of_text,
                    temperature=settings.temperature or 1.0,
                    seeds=[settings.seed + index for index in range(len(settings.prompts))]
                    if settings.temperature
                    else None,
                )
        finally:
            model.train(was_training)
        tokens = answers.tokens[:, self._prompts.shape[1] :].tolist()
        texts = (
            self._text(prompt, row[:length])
            for prompt, row, length in zip(settings.prompts, tokens, answers.lengths().tolist(), strict=True)
        )
        return TextSamples(step=step, texts=tuple(texts))

    def _text(self, prompt: str, tokens: list[int]) -> SampledText:
        ended = tokens[-1] == self._tokenizer.end_of_text
        text = self._tokenizer.decode(tokens[:-1] if ended else tokens)
        return SampledText(prompt=prompt, text=text.replace("\0", REPLACED)[:LONGEST_SAMPLE], ended=ended)


REPLACED: Final = "\ufffd"
"""The replacement of a NUL, which PostgreSQL keeps in no text."""
