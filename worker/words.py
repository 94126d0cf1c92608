"""Words that sentences of every kind are made of."""


def pluralize(count: int, singular: str, plural: str | None = None) -> str:
    """Return `1 run`, `2 runs`, `1,200 runs`; with a verb `1 run has`, `2 runs have`. `plural`: where it is not the
    singular with an s."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"
