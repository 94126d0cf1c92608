"""Imports stand at a module's top. The table lists the exceptions: a cost, or an extra, that only some calls need.

What is heavy (torch, transformers, Ray, MLflow, matplotlib, pyarrow, SciPy, Optuna) is imported at the
top of the modules that use it, and the first such module on the way is imported inside the function that needs it. A
cycle is no reason: move what both sides need. Names that a table holds (verbs of the command line, studies, families of
models) are imported by `import_module`, at the one place that reads the table.
"""

import ast

from tests.architecture.tree import REPOSITORY, product_files

TORCH = "torch, seconds, which neither the api nor a client has"
SHARDED = "FSDP and DTensor, a second, for models in parts"
COMPILER = "torch's compiler, more than a second, and Triton, which CPUs lack"
EXTRA = "a package of its own extra, or one that a client lacks"
DOWNLOAD = "the hub's libraries, for who downloads"
RAY = "Ray reads its environment while it is imported"
DEVICE_TIME = "the import is device time, after the clock has started"

REASONS = {
    "api.bundles.layout": {"pyarrow": EXTRA},
    "api.cli.admin.checks": {
        "pynvml": EXTRA,
        "ray._common.usage.usage_constants": "a second, in the process of one check",
        "ray._private.ray_constants": "as above",
        "torch": TORCH,
    },
    "api.cli.experiments.run": {"worker": TORCH},
    "api.cli.files.bundles": {"api.bundles.board": "templates of pages, which the other verbs do without"},
    "api.cli.offline.optimizers": {"worker.checks.optimizer_contract": TORCH, "worker.checks.subject": TORCH},
    "api.cli.studies.study": {"torch": TORCH, "worker.meters.environment": TORCH},
    "api.client.client": {"pandas": EXTRA},
    "api.client.own_runs": {"api.client.client": "the HTTP client, which a run without a service needs none of"},
    "api.imports.mlflow": {"mlflow.tracking": EXTRA},
    "api.imports.tables": {"pyarrow.parquet": EXTRA},
    "api.processes.address": {"httpx2": "an HTTP client, which the service itself has no use for"},
    "api.processes.dispatcher": {"orchestrator.dispatch.ray_runner": RAY},
    "api.processes.sweep_driver": {"orchestrator.sweeps.driver": RAY},
    "api.routes.files": {"orchestrator.export.files": "pyarrow, 50 MB, for who exports"},
    "dashboards.files.figures": {"dashboards.files.vector": "matplotlib, half a second, for figures as files"},
    "optim.adapm.adapm": {"sharded_state": SHARDED},
    "optim.adapm.compiled": {"triton.errors": COMPILER, "kernels": COMPILER},
    "optim.baselines.low_bit": {"torchao.optim": EXTRA, "torchao.optim.adam": EXTRA},
    "optim.plan.sharding": {"torch.distributed.tensor._utils": SHARDED},
    "orchestrator.analysis.scipy_parts": {"scipy": "a fifth of a second for most requests, and clients lack it"},
    "orchestrator.dispatch.attempt_actor": {
        "orchestrator.dispatch.distributed_runner": "for a group of processes alone",
        "worker.attempt": DEVICE_TIME,
    },
    "orchestrator.dispatch.distributed_runner": {"orchestrator.dispatch.ray_train": DEVICE_TIME},
    "orchestrator.dispatch.ray_process": {"ray": RAY},
    "orchestrator.export.exporter": {"orchestrator.export.mlflow": "a second and 100 MB, for who exports to MLflow"},
    "orchestrator.store.database": {"orchestrator.store": "Alembic, for a schema that is not the newest"},
    "orchestrator.studies.debias_theorem.figures": {"orchestrator.studies.debias_theorem.replicas": TORCH},
    "orchestrator.studies.memory_table.figures": {"worker.footprint.count": TORCH},
    "orchestrator.sweeps.report": {"orchestrator.sweeps.importance": "Optuna, for who asks for importances"},
    "worker.attempt": {"worker.run": "torch: a SIGTERM meanwhile waits for the first step"},
    "worker.data.conversations": {"worker.data.hub": DOWNLOAD},
    "worker.data.files": {"pyarrow.parquet": "for Parquet alone"},
    "worker.data.sources": {"worker.data.hub": DOWNLOAD},
    "worker.data.weights": {"huggingface_hub": DOWNLOAD},
    "worker.footprint.count": {
        "worker.footprint.passes": "tensors without storage, and transformers: seconds, for who asks for activations",
        "torch.testing._internal.distributed.fake_pg": SHARDED,
        "worker.distributed.sharding": SHARDED,
    },
    "worker.footprint.process": {"worker.footprint.count": TORCH},
    "worker.fork_server": {"worker.attempt": "in a forked process, whose parent has imported it"},
    "worker.remote.folder": {"fsspec": "a tenth of a second, which clients lack", "fsspec.registry": "as above"},
    "worker.run": {"worker.distributed": SHARDED},
    "worker.tasks.generation": {"transformers.generation.logits_process": "transformers, for models of its own"},
    "worker.tasks.remax": {"transformers.models.auto.modeling_auto": "the names of all models, for one reward"},
}  # fmt: skip
"""Module → what it imports inside functions → why."""


def imports_in_functions(path: str) -> set[str]:
    """The modules that a file imports inside functions."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    imported: set[str] = set()
    for node in (inner for function in functions for inner in ast.walk(function)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {node.module} if node.module else {alias.name for alias in node.names}
    return imported


def test_every_import_in_a_function_has_its_reason():
    files = [path for path in product_files() if not path.startswith("benchmarks/")]
    imported = {path.removesuffix(".py").replace("/", "."): imports_in_functions(path) for path in files}
    assert {name: modules for name, modules in imported.items() if modules} == {
        name: {*reasons} for name, reasons in REASONS.items()
    }
