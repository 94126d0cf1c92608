"""The size that a law predicts: a model of the catalog, or a number of parameters. Pure."""

from contextlib import suppress
from typing import NamedTuple

from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.catalog.presets import parameter_count


class Target(NamedTuple):
    """A size and a budget to predict the loss at."""

    parameters: int
    tokens: int | None = None
    """None: as many for each parameter as the largest model had."""
    model: str | None = None
    """The preset that has this size."""


def is_target(text: str) -> str:
    """Return the text, where it names a model or a number of parameters; raises `ValueError` if it does not."""
    if text in presets.names():
        return text
    try:
        parameters = float(text)
    except ValueError:
        parameters = 0.0
    if not 1 <= parameters <= 1e15:
        raise ValueError(f"must be a number of parameters from 1 to 1e15, or one of {', '.join(presets.names())}")
    return text


def target(text: str, tokenizer: str) -> Target:
    """Return the size that a text means for experiments with that tokenizer."""
    if is_target(text) not in presets.names():
        return Target(round(float(text)))
    return Target(parameter_count(presets.preset(text), _vocabulary(tokenizer)), None, text)


def _vocabulary(tokenizer: str) -> int | None:
    """Return the vocabulary of stored experiments' tokenizer; None if the catalog no longer has it, and the preset's
    own counts."""
    with suppress(KeyError):
        return data_catalog.vocabulary_size(tokenizer)
    return None


def larger_presets(models: set[str], tokenizer: str) -> tuple[str, ...]:
    """Return the next two larger models of the catalog, of the family of the largest one that was trained."""
    vocabulary = _vocabulary(tokenizer)
    sizes = {preset.name: parameter_count(preset, vocabulary) for preset in presets.PRESETS}
    sized = [name for name in models if name in sizes]
    if not sized:
        return ()
    largest = max(sized, key=sizes.__getitem__)
    family = presets.preset(largest).family
    candidates = [
        preset for preset in presets.PRESETS if preset.family == family and sizes[preset.name] > sizes[largest]
    ]
    return tuple(preset.name for preset in sorted(candidates, key=lambda preset: sizes[preset.name]))[:2]
