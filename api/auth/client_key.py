"""The key that a client shows: given, or of the environment, or in a file that the environment names. Never printed."""

import os
from collections.abc import Mapping
from pathlib import Path

KEY_VARIABLE = "ADAPM_BENCH_KEY"
KEY_FILE_VARIABLE = "ADAPM_BENCH_KEY_FILE"


class KeyUnreadableError(Exception):
    """The key of this client cannot be used; the message says where it was looked for, never what was found."""


def own_key(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the key to show, if there is one. Raises `KeyUnreadableError`."""
    if key := environment.get(KEY_VARIABLE, "").strip():
        return check_key(key, f"${KEY_VARIABLE}")
    if name := environment.get(KEY_FILE_VARIABLE):
        try:
            return check_key(Path(name).expanduser().read_text().strip(), name)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise KeyUnreadableError(f"the key file {name} cannot be read: {reason}") from None
    return None


def check_key(key: str, source: str) -> str:
    """Return `key` if it can be sent in a header; `source` names its origin in the error."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyUnreadableError(f"{source} does not hold a key; one looks like adapm_k3v9mpd27x_…, on a single line")
    return key
