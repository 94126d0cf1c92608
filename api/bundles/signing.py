"""Signatures of bundles: an in-toto statement of every file's digest, in a DSSE envelope, by an Ed25519 key.

https://in-toto.io/Statement/v1 and github.com/secure-systems-lab/dsse. A signature says who published, not that it is
true: a key is worth what its reader knows of its owner, and is pinned by its fingerprint. There is no sigstore: it
needs a network and an account, which installations need not have.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic_core import from_json

from api.bundles.layout import SCHEMA_VERSION, SIGNER, STATEMENT, BundleError
from orchestrator.export.document import Provenance
from worker.files import create_once

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
SCHEMA: Final = f"urn:adapm-bench:bundle:{SCHEMA_VERSION}"
KEY_NAME: Final = "bundles.pem"


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in that file, which is made with the first bundle. Raises `BundleError`."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            create_once(path, text.decode(), mode=0o600)
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BundleError("key", f"{path} cannot be used to sign: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        hint = f"make one: openssl genpkey -algorithm ed25519 -out {path}"
        raise BundleError("key", f"{path} holds no Ed25519 key; {hint}")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of the key as DER, by which people compare keys."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def sign(files: Mapping[str, bytes], provenance: Provenance, key: Ed25519PrivateKey) -> dict[str, bytes]:
    """Return the public half of the key and the signed statement, which stand beside the files."""
    public = key.public_key()
    signer = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": _digests({**files, SIGNER: signer}),
        "predicateType": SCHEMA,
        "predicate": predicate(provenance),
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = key.sign(_pre_authentication_encoding(payload))
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": fingerprint(public), "sig": base64.b64encode(signature).decode()}],
    }
    return {SIGNER: signer, STATEMENT: json.dumps(envelope, indent=1).encode() + b"\n"}


def predicate(provenance: Provenance) -> dict[str, Any]:
    """Return the statement about the files: which experiment, on which data, by which code."""
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment_id": provenance.experiment_id,
        "name": provenance.name,
        "kind": provenance.kind,
        "spec_hash": provenance.spec_hash,
        "data_hashes": list(provenance.data_hashes),
        "commits": list(provenance.commits),
        "bench_version": provenance.bench_version,
        "written_at": provenance.written_at,
    }


def check_signature(files: Mapping[str, bytes], trusted: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """Return the fingerprint of the signer, and the predicate. Raises `BundleError` if the statement is not about
    exactly these files, or not signed by the key beside them, or that key is none of the `trusted` ones, where there
    are any."""
    try:
        public = load_pem_public_key(files[SIGNER])
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BundleError("signer", f"{SIGNER} holds no public key") from error
    if not isinstance(public, Ed25519PublicKey):
        raise BundleError("signer", f"{SIGNER} holds no Ed25519 key")
    signer = fingerprint(public)
    match _signed_statement(files[STATEMENT], public):
        case {"_type": kind, "subject": list(subject), "predicateType": str(schema), "predicate": dict(said)} if (
            kind == STATEMENT_TYPE
        ):
            pass
        case _:
            raise BundleError("statement", f"the payload is not a statement of {STATEMENT_TYPE}")
    if trusted and signer not in trusted:
        raise BundleError("signer", f"signed by {signer}, which is none of the keys that were given")
    if schema != SCHEMA:
        raise BundleError("statement", f"it is of another schema ({schema}); this version reads {SCHEMA}")
    digests = _digests({name: content for name, content in files.items() if name != STATEMENT})
    if subject != digests:
        changed = next((digest["name"] for digest in digests if digest not in subject), "a file that is not here")
        raise BundleError("digest", f"{changed} is not as it was signed")
    return signer, said


def _signed_statement(content: bytes, public: Ed25519PublicKey) -> Any:
    """Return the content of the envelope, which that key has signed."""
    try:
        match from_json(content):
            case {"payloadType": kind, "payload": str(text), "signatures": [{"sig": str(sig)}]} if kind == PAYLOAD_TYPE:
                payload, signature = (base64.b64decode(encoded, validate=True) for encoded in (text, sig))
            case _:
                raise BundleError("statement", f"{STATEMENT} is no DSSE envelope with one signature")
        public.verify(signature, _pre_authentication_encoding(payload))
        return from_json(payload)
    except InvalidSignature as error:
        raise BundleError("signature", "the statement was not signed by this key, or changed since") from error
    except ValueError as error:
        raise BundleError("statement", f"{STATEMENT} is not encoded as DSSE has it") from error


def _digests(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the subject of a statement: the SHA-256 of each file, sorted by name."""
    return [{"name": name, "digest": {"sha256": hashlib.sha256(files[name]).hexdigest()}} for name in sorted(files)]


def _pre_authentication_encoding(payload: bytes) -> bytes:
    """Return the bytes that DSSE signs."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
