"""The JSON schema of each kind of specification, for editors: fields, what they mean, and the names that are known.

It never refuses what the service takes; what depends on several fields at once (equal grids, a model's positions) only
the service tells.
"""

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from optim import catalog
from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.registry import KINDS
from orchestrator.kinds.scaling import Size
from orchestrator.kinds.sweep import SearchedCandidate
from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.schema import Spec
from worker.spec.run import DataSpec, OptimizerSpec, RunSpec, Workload
from worker.spec.task import LINEAR_MODEL

SPECS: Final[dict[str, type[Spec]]] = {**KINDS, "run": RunSpec}
"""Kind → what a file of that kind holds."""


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a specification of that kind."""
    json_schema = SPECS[kind].model_json_schema()
    parts: dict[str, Any] = json_schema.get("$defs", {})
    _name(parts)
    _loosen(parts)
    for path in KINDS[kind].derived_fields if kind in KINDS else ():
        _leave_out(path, json_schema, parts)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **json_schema,
        "title": f"AdaPM Bench: {kind}",
        "additionalProperties": False,
    }


def _name(parts: dict[str, Any]) -> None:
    """Say which names are known where a specification names something."""
    models = {"enum": [*presets.names(), LINEAR_MODEL]}
    optimizers = {"anyOf": [{"enum": list(catalog.names())}, _pattern("pytorch_optimizer[.]")]}
    datasets = {"anyOf": [{"enum": _plain(data_catalog.dataset_names())}, _pattern("own/")]}
    tokenizers = {"anyOf": [{"enum": _plain(data_catalog.tokenizer_names())}, _pattern("own/", "bpe-[0-9]")]}
    for part, field, names in (
        (Workload, "model", models),
        (Size, "model", {"enum": list(presets.names())}),
        (DataSpec, "dataset", datasets),
        (DataSpec, "tokenizer", tokenizers),
        (Candidate, "optimizer", optimizers),
        (SearchedCandidate, "optimizer", optimizers),
        (OptimizerSpec, "name", optimizers),
    ):
        if (part_schema := parts.get(part.__name__)) is not None:
            part_schema["properties"][field].update(names)
            part_schema["properties"][field].pop("type", None)


def _plain(names: tuple[str, ...]) -> list[str]:
    """Return the names without those that only say how others are made, `own/<name>`."""
    return [name for name in names if "<" not in name]


def _pattern(*beginnings: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^({'|'.join(beginnings)})"}


def _leave_out(path: tuple[str, ...], part: dict[str, Any], parts: dict[str, Any]) -> None:
    """Take back that a field is demanded which follows from others, and what holds nothing else that is; the part of
    the specification that it is in stays demanded."""
    way = []
    for name in path[:-1]:
        part = parts[part["properties"][name]["$ref"].rpartition("/")[2]]
        way.append(part)
    for part, name in zip(reversed(way), reversed(path), strict=False):
        part["required"] = [field for field in part["required"] if field != name]
        if part["required"]:
            return


def _loosen(parts: dict[str, Any]) -> None:
    """Take back what is demanded of a specification only after defaults of its task were filled in."""
    for part, optional in ((Workload, "model"), (SearchedCandidate, "space")):
        if (part_schema := parts.get(part.__name__)) is not None:
            part_schema["required"] = [field for field in part_schema.get("required", ()) if field != optional]
    task = parts["Workload"]["properties"]["task"]
    arms = [task.pop(name) for name in ("oneOf", "anyOf", "$ref") if name in task]
    task.pop("discriminator", None)
    if arms and isinstance(arms[0], list):
        kinds = [arm["$ref"].rpartition("/")[2] for arm in arms[0]]
        names = [parts[kind]["properties"]["kind"]["const"] for kind in kinds]
        task["anyOf"] = [{"enum": names}, *arms[0]]
