"""The frozen parts: each gives its files by name."""

import dataclasses
import hashlib
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from httpx2 import Response
from transformers.models.mixtral.configuration_mixtral import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralForCausalLM
from typer.testing import CliRunner

from tests.architecture.tree import REPOSITORY
from tests.witnesses import product
from tests.witnesses.crawl import Crawl

Files = Iterator[tuple[str, bytes]]
"""Path below the folder, and content."""
STEPS = 10
OPTIMIZERS = (
    "adapm", "adapm-mini", "adamw", "adam-mini", "galore", "apollo", "muon", "shampoo", "scale", "mars", "soap",
    "adafactor", "lion", "adamw-8bit", "came", "asgd",
)  # fmt: skip
"""The optimizers that the catalog has."""
ADAPM_OPTIONS: tuple[dict[str, object], ...] = (
    {"solver": "svd"}, {"inner_iterations": 2}, {"refresh_interval": 3}, {"clip": None},
    {"bias_correction": False}, {"debias_moments": True}, {"state_dtype": "bfloat16"}, {"rank_ratio": 0.5},
)  # fmt: skip
KEPT_HEADERS = ("content-type", "content-disposition", "cache-control", "location", "content-security-policy")
ASSET = re.compile(rb"(/static/[\w.]+\?v=)[0-9a-f]{12}")
"""The address of a static file tells its content, which is a witness of its own."""
NONCE = re.compile(rb'(name="nonce" value=")[0-9a-f]+')
"""The nonce of a form that is sent once."""
BINARY = ("image/png", "application/pdf", "application/vnd.apache.parquet", "application/octet-stream")
TIMED = re.compile(rb"^((?:process|python|adapm_bench_http|adapm_bench_request)[^ ]*) .*$", re.MULTILINE)
"""The lines of `/metrics` about this process and its pace."""
PLOTLY = re.compile(rb"(<script[^>]*>)(?:(?!</script).){200000,}(</script>)", re.DOTALL)


def pages() -> Files:
    """Return the application's answers over the stored data folder: pages, figures, files and REST."""
    with _read_folder() as (folder, client):
        crawl = Crawl(client)
        crawl.walk()
        while crawl.waiting:  # for footprints that the stored folder has not
            time.sleep(0.5)
            crawl = Crawl(client)
            crawl.walk()
        lines = []
        for address, answer in sorted(crawl.answers.items()):
            headers = " · ".join(answer.headers[name] for name in KEPT_HEADERS if name in answer.headers)
            lines.append(f"{address}\n    {answer.status_code} · {ASSET.sub(b'', headers.encode()).decode()}")
            yield file_of(address, answer), even(answer, folder)
        yield "answers.txt", ("\n".join(lines) + "\n").encode()


def commands() -> Files:
    """Return the output of the command line on the stored data folder, and without a service."""
    with _read_folder() as (folder, client), _served(client.app) as url:
        experiments = {
            experiment["id"]: experiment["kind"] for experiment in client.get("/v1/experiments").json()["items"]
        }
        for arguments in (*_offline(folder), *_online(experiments)):
            for form in ([], ["--json"]):
                env = {"ADAPM_BENCH_URL": url, "ADAPM_BENCH_DATA_FOLDER": str(folder)}
                result = CliRunner(env=env).invoke(product.command_line, [*arguments, *form], prog_name="adapm-bench")
                text = f"exit code {result.exit_code}\n{result.output}"
                if result.exception and not isinstance(result.exception, SystemExit):
                    text += f"\n{result.exception!r}"
                neutral_text = text.replace(url, "URL").replace(str(folder), "FOLDER")
                yield (
                    f"commands/{_safe(' '.join([*arguments, *form]).replace(str(folder), 'FOLDER'))}.txt",
                    neutral_text.encode(),
                )


def actions() -> Files:
    """Return the answers of actions on the stored data folder; new ids are numbered in their order."""
    exchanges: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    with _read_folder() as (folder, client):

        def ask(method: str, path: str, **more: Any) -> Any:
            answer = client.request(method, path, **more)
            body = even(answer, folder).decode()
            for new_id in re.findall(r'"id": "([0-9a-z]{10})"', body):
                ids.setdefault(new_id, f"id-{len(ids)}")
            exchanges.append({"asked": f"{method} {path}", "status": answer.status_code, "answered": body})
            return answer.json() if answer.headers.get("content-type", "").endswith("json") else None

        ask("GET", "/v1/experiments")
        example = product.fields_of(REPOSITORY / "docs/example.yaml")
        for path in sorted(REPOSITORY.glob("docs/example*.yaml")):
            ask("POST", "/v1/experiments/validate", json=product.fields_of(path))
        ask("POST", "/v1/experiments/validate", json=example | {"seeds": [1, 1], "candidates": [{"optimizer": "adma"}]})
        ask("POST", "/new", data={"action": "check"})
        first = ask("POST", "/v1/experiments", json=example, headers={"Idempotency-Key": "witness-1"})["experiment"][
            "id"
        ]
        ask("POST", "/v1/experiments", json=example, headers={"Idempotency-Key": "witness-1"})
        ask("POST", "/v1/experiments", json=example | {"name": "Another"}, headers={"Idempotency-Key": "witness-1"})
        experiment_path = f"/v1/experiments/{first}"
        ask("PATCH", experiment_path, json={"labels": ["one"], "note": "A note."})
        for verb in ("pause", "resume", "cancel", "retry", "cancel"):
            ask("POST", f"{experiment_path}/{verb}")
        ask("POST", f"/v1/runs/{first}-0000/pause")
        ask("DELETE", experiment_path)
        ask("POST", f"{experiment_path}/restore")
        ask("POST", f"{experiment_path}/clone", json={"name": "A clone"})
        for page in (f"/experiments/{first}/edit", f"/experiments/{first}/clone", f"/new?from={first}", "/"):
            ask("GET", page)
        ask("GET", "/v1/audit")
    id_pattern = re.compile("|".join(ids))
    for number, exchange in enumerate(exchanges):
        text = f"{exchange['asked']}\n{exchange['status']}\n\n{exchange['answered']}"
        name = _safe(id_pattern.sub(lambda match: ids[match[0]], exchange["asked"]))
        yield f"actions/{number:02d} {name}.txt", id_pattern.sub(lambda match: ids[match[0]], text).encode()


def specifications() -> Files:
    """Shipped examples and studies as runs and hashes, and the catalog as data."""
    document: dict[str, Any] = {"examples": {}, "studies": {}}
    for path in sorted(
        [*REPOSITORY.glob("docs/example*.yaml"), *REPOSITORY.glob("orchestrator/specs/examples/*.yaml")]
    ):
        name = path.name if path.parent.name == "docs" else f"init {path.name}"
        document["examples"][name] = _runs_of(product.fields_of(path))
    for study in _json_of(["study", "ls", "--json"]):
        document["studies"][study["name"]] = {
            scale["scale"]: scale
            | {"experiments": {experiment["part"]: _runs_of(experiment["spec"]) for experiment in scale["experiments"]}}
            for scale in study["scales"]
        }
    document["catalog"] = [dataclasses.asdict(entry) for entry in product.entries()]
    yield "specifications.json", pretty(document)


def losses() -> Files:
    """Bit-exact losses and final weights of tiny models under the catalog's optimizers, on one thread."""
    names = {entry.name for entry in product.entries()}
    trainings: dict[str, Any] = {}
    for name in (optimizer for optimizer in OPTIMIZERS if optimizer in names):
        trainings[name] = _trained(name, _gpt2)
    for options in ADAPM_OPTIONS:
        trainings[f"adapm {json.dumps(options)}"] = _trained("adapm", _gpt2, options)
    trainings["adapm bfloat16"] = _trained("adapm", lambda: product.tiny_gpt2(dtype=torch.bfloat16))
    for name in ("adapm", "adapm-mini"):
        trainings[f"{name} mixtral"] = _trained(name, _mixtral)
    yield "losses.json", pretty(trainings)


PARTS: dict[str, Callable[[], Files]] = {
    "pages": pages,
    "actions": actions,
    "commands": commands,
    "specifications": specifications,
    "losses": losses,
}
"""The parts by the word of `--only`."""


@contextmanager
def _read_folder() -> Iterator[tuple[Path, Any]]:
    """The stored data folder, opened, and who asks."""
    with tempfile.TemporaryDirectory(prefix="witness-") as name, product.fixed_clock():
        folder = product.unpacked(Path(name))
        with product.opened(folder) as opened_folder, product.client_of(opened_folder.app) as client:
            yield folder, client


@contextmanager
def _served(app: Any) -> Iterator[str]:
    """The application behind a real server on a free port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _offline(folder: Path) -> Iterator[list[str]]:
    yield from (["--version"], ["models"], ["optimizers"], ["data", "ls"])
    yield from (["optimizers", entry.name] for entry in product.entries())
    yield from (["init", kind, "--schema", "--out", "-"] for kind in ("comparison", "sweep", "scaling", "run"))
    yield from (["models", model, "--blocks"] for model in ("gpt2-tiny", "gpt2-124m", "llama-60m"))
    yield from (["models", "gpt2-tiny"], ["models", "gpt2-nano", "--rank-ratio", "0.2"])
    yield ["db", "check", "--data", str(folder)]
    yield from (
        ["validate", str(path.relative_to(REPOSITORY))] for path in sorted(REPOSITORY.glob("docs/example*.yaml"))
    )


def _online(experiments: dict[str, str]) -> Iterator[list[str]]:
    yield from (["ls"], ["ls", "--deleted"], ["runs", "--where", "state=failed"], ["keys", "audit"], ["keys", "ls"])
    for experiment_id in experiments:
        yield from (["show", experiment_id], ["compare", experiment_id], ["fit", experiment_id])
        yield from (["show", f"{experiment_id}-0000"], ["logs", f"{experiment_id}-0000"])
    comparisons = [experiment_id for experiment_id, kind in experiments.items() if kind == "comparison"]
    yield ["compare", *comparisons]
    yield ["validate", "docs/example.yaml"]


def _runs_of(fields: dict[str, Any]) -> dict[str, Any]:
    """A specification's hash and those of the runs that it begins with."""
    if "optimizer" in fields:
        return {"run": product.RunSpec.model_validate(fields).content_hash()}
    spec = product.validate_spec(fields)
    runs = [f"{run.candidate} {run.spec.content_hash()}" for run in spec.first_runs()]
    every = hashlib.sha256("\n".join(runs).encode()).hexdigest()
    return {"hash": spec.content_hash(), "run_count": spec.run_count(), "all": every, "runs": runs[:MOST_RUNS]}


MOST_RUNS = 12


def _trained(name: str, factory: Callable[[], torch.nn.Module], options: dict[str, object] | None = None) -> Any:
    """Losses of some steps as they are, to the last bit, and a hash of what came of the weights."""
    torch.manual_seed(0)
    model = factory()
    optimizer = product.build(name, model, lr=3e-3, options=options or {})
    losses = []
    for step in range(STEPS):
        tokens = product.batch(step)
        optimizer.zero_grad()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()).hex())
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.contiguous().view(torch.uint8).numpy().tobytes())
    return {"losses": losses, "weights": digest.hexdigest()}


def _gpt2() -> torch.nn.Module:
    return product.tiny_gpt2()


def _mixtral() -> torch.nn.Module:
    """Return a layer of four experts, of which each token takes two."""
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, num_local_experts=4, num_experts_per_tok=2,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return MixtralForCausalLM(config)


def _said(arguments: list[str]) -> str:
    """Return the output of a command over an empty data folder."""
    with tempfile.TemporaryDirectory(prefix="witness-") as folder:
        env = {"ADAPM_BENCH_DATA_FOLDER": folder}
        result = CliRunner(env=env).invoke(product.command_line, arguments, prog_name="adapm-bench")
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        return result.output.replace(folder, "FOLDER")


def _json_of(arguments: list[str]) -> Any:
    return json.loads(_said(arguments))


def pretty(value: Any) -> bytes:
    """JSON with a line for each value, in the order that it has; what JSON has no word for as Python shows it."""
    return (json.dumps(value, indent=1, ensure_ascii=False, default=repr) + "\n").encode()


def file_of(address: str, answer: Response) -> str:
    """The file for an address: by its path, and its query where it has one."""
    path, _, query = address.partition("?")
    kind = answer.headers.get("content-type", "").partition(";")[0]
    endings = {"text/html": ".html", "application/json": ".json", "application/problem+json": ".json"}
    name = _safe(path.strip("/") or "home", "/") + (f"@{_safe(query)}" if query else "")
    ending = endings.get(kind, "")
    part = "rest" if path.startswith("/v1/") else "figures" if "/figures/" in path else "pages"
    return f"{part}/{name}{'' if name.endswith(ending) else ending}"


def _safe(text: str, extra: str = "") -> str:
    """A name of a file; a long one ends with its digest."""
    name = re.sub(rf"[^\w.,=&+@ {extra}-]", "_", text)
    return name if len(name) < 150 else f"{name[:130]}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def even(answer: Response, folder: Path) -> bytes:
    """The content without what differs from one machine or moment to another."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    body: bytes = answer.content
    if kind in BINARY:
        return f"{len(body)} bytes, SHA-256 {hashlib.sha256(body).hexdigest()}\n".encode()
    body = body.replace(str(folder).encode(), b"FOLDER")
    if kind.endswith("json"):
        return pretty(json.loads(body))
    body = TIMED.sub(rb"\1", body) if answer.url.path == "/metrics" else body
    if answer.url.path.endswith("plotly-basic.min.js"):
        return f"SHA-256 {hashlib.sha256(body).hexdigest()}\n".encode()
    return NONCE.sub(rb"\1", ASSET.sub(rb"\1", PLOTLY.sub(_shortened, body)))


def _shortened(match: "re.Match[bytes]") -> bytes:
    return match[1] + f"SHA-256 {hashlib.sha256(match[0]).hexdigest()}".encode() + match[2]
