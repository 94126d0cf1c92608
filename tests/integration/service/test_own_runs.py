"""Somebody's own training loop logs without a service, one process of it is killed, and the verdict is the same as if
its numbers had been put into the analysis directly."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from api.cli import main
from api.client.client import Client
from api.client.spool import RunSpool, find
from orchestrator.analysis.estimator import paired_difference
from orchestrator.analysis.statistics import mean_interval
from orchestrator.external_runs import ExternalState
from orchestrator.records import Conclusion
from tests.architecture.tree import REPOSITORY
from tests.factories.waiting import until

pytestmark = pytest.mark.slow

LOOP = """
import json, math, os, random, sys, time
from pathlib import Path
from api.client import start_run

folder, killed_at = Path(sys.argv[1]), int(sys.argv[2])
final = {}
for candidate, lr, gain in (("adamw", 0.002, 0.0), ("muon", 0.02, 0.06)):
    for seed in (1, 2, 3):
        run = start_run(experiment="nanoGPT: muon", candidate=candidate, lr=lr, seed=seed, id=f"{candidate}-{seed}",
                        config={"n_layer": 2}, workload="shakespeare", folder=folder)
        drawn = random.Random(100 * seed)
        for step in range(0, 101, 10):
            loss = 1.5 + 2.5 * math.exp(-step / 20) - gain * step / 100 + 0.01 * drawn.gauss(0, 1) * (1 + gain)
            run.log(step=step, val_loss=loss, train_loss=loss - 0.1, tokens=step * 4096)
            if (candidate, seed, step) == ("muon", 2, killed_at):
                (folder / "here").write_text(str(os.getpid()))
                time.sleep(600)
        run.finish()
        final[f"{candidate}-{seed}"] = loss
print(json.dumps(final))
"""


def test_logged_offline_killed_synced_twice_and_judged(tmp_path: Path, service_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("ADAPM_BENCH_URL", "RANK")}
    environment |= {"PYTHONPATH": str(REPOSITORY)}
    script = [sys.executable, "-c", LOOP, str(tmp_path)]
    with subprocess.Popen([*script, "60"], env=environment) as first:
        until((tmp_path / "here").exists, "the loop is in the middle of its fifth run", seconds=60)
        first.send_signal(signal.SIGKILL)
    with Client(service_url) as client:
        for path in find(tmp_path):
            RunSpool(path).send(client)
        states = {run.id: run.state for run in client.external_runs("nanoGPT: muon")}
        assert states["muon-2"] is ExternalState.RUNNING and states["muon-1"] is ExternalState.FINISHED

        process = subprocess.run([*script, "-1"], env=environment, capture_output=True, text=True, check=True)
        final = json.loads(process.stdout)
        with ThreadPoolExecutor(1) as pool:  # another one who sends the same
            upload = pool.submit(lambda: [RunSpool(path).send(client) for path in find(tmp_path)])
            synced = CliRunner().invoke(main, ["import", str(tmp_path), "--url", service_url])
            upload.result()
        assert synced.exit_code == 0 and "6 runs" in synced.output

        runs = client.external_runs("nanoGPT: muon")
        assert len(runs) == 6 and {run.state for run in runs} == {ExternalState.FINISHED}
        assert {run.id: run.metrics["val_loss"].last for run in runs} == final
        assert client.external_series("muon-2").steps["val_loss"] == tuple(range(0, 101, 10))
        answer = client.judge("nanoGPT: muon", baseline="adamw")
        table = CliRunner().invoke(main, ["compare", "nanoGPT: muon", "--baseline", "adamw", "--url", service_url])
        page = httpx2.get(f"{service_url}/experiments/{answer.experiment_id}?baseline=adamw").text

    muon, adamw = ([final[f"{name}-{seed}"] for seed in (1, 2, 3)] for name in ("muon", "adamw"))
    best = answer.rows[0]
    expected = paired_difference(dict(enumerate(muon)), dict(enumerate(adamw)))
    assert expected is not None and best.difference is not None
    assert best.loss == mean_interval(muon)
    for figure in ("mean", "low", "high", "p_value"):
        assert getattr(best.difference, figure) == pytest.approx(getattr(expected, figure)), figure
    assert (best.candidate, best.conclusion, best.tokens) == ("muon", Conclusion.BETTER, (409_600.0,))
    printed = " ".join(table.output.split())
    assert table.exit_code == 0 and "not measured by the bench; val_loss, lower is better" in printed
    assert best.verdict in printed
    assert ">logged</span>" in page and "lower than adamw" in page
    assert all(record.origin == "external" for record in (answer, *runs))
