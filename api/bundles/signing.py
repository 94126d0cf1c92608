"""How bundles are signed: an in-toto statement of every file's digest, in a DSSE envelope, by an Ed25519 key.

https://in-toto.io/Statement/v1 and github.com/secure-systems-lab/dsse. A signature says who published, not that it is
true: a key is worth what its reader knows of its owner, and is pinned by its fingerprint. There is no sigstore: it
needs a network and an account, which installations need not have.
"""

import base64
import binascii
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

from api.bundles.layout import EARLIER_SCHEMA, SCHEMA_VERSION, SIGNER, STATEMENT, BundleError
from orchestrator.export.document import ExperimentDocument
from worker.files import create_once

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPES: Final = {schema: f"urn:adapm-bench:bundle:{schema}" for schema in (EARLIER_SCHEMA, SCHEMA_VERSION)}
KEY_NAME: Final = "bundles.pem"


class BundleKeyError(Exception):
    """A key cannot sign bundles."""


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The key in that file, which is made with the first bundle. Raises `BundleKeyError`."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            create_once(path, text.decode(), mode=0o600)
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BundleKeyError(f"{path} cannot be used to sign: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleKeyError(f"{path} holds no Ed25519 key; make one: openssl genpkey -algorithm ed25519 -out {path}")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """What people compare: SHA-256 of the key as DER."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def sign(files: Mapping[str, bytes], of_experiment: ExperimentDocument, key: Ed25519PrivateKey) -> dict[str, bytes]:
    """The key's public half and the signed statement, beside the files that it is about."""
    public = key.public_key()
    signer = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    subject = {**files, SIGNER: signer}
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": hashlib.sha256(subject[name]).hexdigest()}} for name in sorted(subject)
        ],
        "predicateType": PREDICATE_TYPES[SCHEMA_VERSION],
        "predicate": predicate(of_experiment),
    }
    payload = _payload(statement)
    signature = key.sign(_pre_authentication_encoding(PAYLOAD_TYPE, payload))
    return {SIGNER: signer, STATEMENT: _envelope(payload, fingerprint(public), signature)}


def predicate(of_experiment: ExperimentDocument, schema: int = SCHEMA_VERSION) -> dict[str, Any]:
    """What the statement says of the files: what was measured, on what, by which code."""
    said = of_experiment.provenance
    return {
        "schema_version": schema,
        "experiment_id": said.experiment_id,
        "name": said.name,
        "kind": said.kind,
        "spec_hash": said.spec_hash,
        "data_hashes": list(said.data_hashes),
        "commits": list(said.commits),
        "bench_version": said.bench_version,
        "written_at": said.written_at,
    }


def check_signature(files: Mapping[str, bytes], trusted: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """The signer's fingerprint, and the predicate. Raises `BundleError` where the statement is not about exactly these
    files, or not signed by the key beside them, or that key is none of the `trusted` ones, where there are any."""
    public = _public_key(files[SIGNER])
    signer = fingerprint(public)
    payload = _signed_payload(files[STATEMENT], public, signer)
    if trusted and signer not in trusted:
        raise BundleError("signer", f"signed by {signer}, which is none of the keys that were given")
    match payload:
        case {"_type": str(kind), "subject": list(subject), "predicateType": str(about), "predicate": dict(said)}:
            pass
        case _:
            raise BundleError("statement", "the payload is no in-toto statement")
    if len(payload) != 4 or kind != STATEMENT_TYPE:
        raise BundleError("statement", f"the payload is no statement of {STATEMENT_TYPE}")
    version = said.get("schema_version")
    if type(version) is not int or about != PREDICATE_TYPES.get(version):
        raise BundleError(
            "statement", f"it is of another schema ({about}); this reads {' and '.join(PREDICATE_TYPES.values())}"
        )
    wanted = [
        {"name": name, "digest": {"sha256": hashlib.sha256(files[name]).hexdigest()}}
        for name in sorted(files)
        if name != STATEMENT
    ]
    names = [each.get("name") if isinstance(each, dict) else None for each in subject]
    if names != [each["name"] for each in wanted]:
        raise BundleError("statement", f"it is about {', '.join(map(str, names))}, which are not the files here")
    for signed, here in zip(subject, wanted, strict=True):
        if signed != here:
            raise BundleError("digest", f"{here['name']} is not the file that was signed")
    return signer, said


def _public_key(content: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BundleError("signer", f"{SIGNER} holds no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BundleError("signer", f"{SIGNER} holds no Ed25519 key")
    if content != key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo):
        raise BundleError("signer", f"{SIGNER} holds more than the key")
    return key


def _signed_payload(content: bytes, public: Ed25519PublicKey, signer: str) -> dict[str, Any]:
    """What the envelope holds, which that key has signed."""
    try:
        envelope = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError("statement", f"{STATEMENT} is no JSON") from error
    match envelope:
        case {
            "payloadType": str(payload_type),
            "payload": str(encoded),
            "signatures": [{"keyid": str(keyid), "sig": str(signature)}],
        }:
            pass
        case _:
            raise BundleError("statement", f"{STATEMENT} is no DSSE envelope with one signature")
    if payload_type != PAYLOAD_TYPE:
        raise BundleError("statement", f"the payload is {payload_type}, not {PAYLOAD_TYPE}")
    if keyid != signer:
        raise BundleError("signature", f"the envelope names the key {keyid}, and {SIGNER} is {signer}")
    try:
        payload, signed = (base64.b64decode(each, validate=True) for each in (encoded, signature))
        public.verify(signed, _pre_authentication_encoding(payload_type, payload))
        found = json.loads(payload)
        # In one form alone: of a name that stands there twice, other readers may take the other value.
        if content != _envelope(payload, keyid, signed) or payload != _payload(found):
            raise BundleError("statement", f"{STATEMENT} holds more than its payload and one signature")
    except InvalidSignature as error:
        raise BundleError("signature", "the statement was not signed by this key, or changed since") from error
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BundleError("statement", f"{STATEMENT} is not encoded as DSSE has it") from error
    return found if isinstance(found, dict) else {}


def _payload(statement: Any) -> bytes:
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def _envelope(payload: bytes, keyid: str, signature: bytes) -> bytes:
    signed = {"keyid": keyid, "sig": base64.b64encode(signature).decode()}
    envelope = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(payload).decode(), "signatures": [signed]}
    return json.dumps(envelope, indent=1).encode() + b"\n"


def _pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    return b"DSSEv1 %d %s %d %s" % (len(payload_type), payload_type.encode(), len(payload), payload)
