"""The outcome of a run is one word everywhere: pages, counts, lists, reports, files."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from html import unescape

import httpx2
import pytest
from typer.testing import Result

from orchestrator.jobs import Outcome, RunAction, RunStatus
from orchestrator.records import StateCounts
from tests.factories.stores import claim, comparison_spec, result
from tests.integration.api_service import Service
from worker.records.protocol import Failure, FailureKind
from worker.records.result import Verdict

WORDS = ("finished", "finished", "diverged", "out of memory", "stopped early", "failed", "cancelled", "queued")
"""The words by seed."""
VERDICTS = dict(
    enumerate((Verdict.CONVERGED, Verdict.CONVERGED, Verdict.DIVERGED, Verdict.OUT_OF_MEMORY, Verdict.STOPPED_EARLY))
)
COUNTED = dict(Counter(WORDS))
COUNTED_WORDS = ", ".join(f"{number} {word}" for word, number in COUNTED.items())


@pytest.fixture(scope="module")
def experiment(service: Service) -> str:
    """Return an experiment with every outcome, and a run that waits."""
    record = service.experiments.submit(comparison_spec(learning_rates=(1e-3,), seeds=range(len(WORDS)))).experiment
    runs = {run.id: run for run in service.runs.read_all(record.id)}
    for run in runs.values():
        if run.seed == 6:
            service.runs.apply(run.id, RunAction.CANCEL)
    for lease in claim(service.queue, cpus=6, limit=6):
        service.attempts.hello(lease.run_id, lease.attempt, lease.token)
        seed = runs[lease.run_id].seed
        if seed in VERDICTS:
            loss = 2.5 if VERDICTS[seed] is Verdict.CONVERGED else None
            ended = result(final_val_loss=loss, verdict=VERDICTS[seed])
            service.attempts.finish(lease.run_id, lease.attempt, lease.token, ended)
        else:
            broken = Failure(kind=FailureKind.PROGRAM, message="an exception", device_seconds=1.0)
            service.attempts.finish(lease.run_id, lease.attempt, lease.token, broken)
    return record.id


def page(service: Service, path: str) -> str:
    answer = httpx2.get(f"{service.url}{path}", verify=False, timeout=60)
    assert answer.status_code == 200
    return answer.text


def text(html: str) -> str:
    """Return the text of a page, without scripts and specifications."""
    html = re.sub(r"<(script|style|pre)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_rest_keeps_its_words_and_they_say_the_same(service: Service, experiment: str) -> None:
    record = httpx2.get(f"{service.url}/v1/experiments/{experiment}").json()
    assert record["counts"]["by_status"] == {"succeeded": 5, "failed": 1, "cancelled": 1, "queued": 1}
    assert record["counts"]["by_verdict"] == {"diverged": 1, "out_of_memory": 1, "stopped_early": 1}
    counts = StateCounts.model_validate(record["counts"])
    assert {state.value.replace("_", " "): number for state, number in counts.by_outcome().items()} == COUNTED
    runs = service.runs.read_all(experiment)
    assert [run.state_word() for run in runs] == list(WORDS)


def test_lists_and_counts_of_the_command_line(
    cli: Callable[..., Result], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    listed = cli("ls").stdout
    for surface in (listed, cli("show", experiment).stdout):
        counted = re.search(rf"{len(WORDS)}: (.+?)(  |\n)", surface)
        assert counted is not None
        assert counted[1] == COUNTED_WORDS
    runs = cli("show", experiment).stdout
    for seed, word in enumerate(WORDS):
        (line,) = (line for line in runs.splitlines() if f"-{seed:04}" in line)
        assert f" {word} " in line
        assert re.search(rf"^state +{word}$", cli("show", line.split()[0]).stdout, flags=re.MULTILINE)
    for outcome in Outcome:
        word = outcome.value.replace("_", " ")
        listing = cli("runs", "--where", f'experiment_id={experiment} and state="{word}"', "--json").stdout
        assert len(json.loads(listing)) == COUNTED[word]
    table = " ".join(cli("compare", experiment).stdout.split())
    for word, number in COUNTED.items():
        assert f"{number} {word}" in table or word == "queued"
    for surface in (listed, runs, table):
        assert "converged" not in surface and "succeeded" not in surface


def test_pages(service: Service, experiment: str) -> None:
    html = page(service, f"/experiments/{experiment}")
    chips = re.findall(r'<td data-label="State"><span class="chip \w+">([^<]+)</span>', html)
    assert dict(Counter(chips)) == COUNTED
    (bar,) = set(re.findall(r'role="img" aria-label="(\d[^"]+queued)"', html))
    assert bar == COUNTED_WORDS
    for run, word in zip(service.runs.read_all(experiment), WORDS, strict=True):
        run_page = page(service, f"/runs/{run.id}")
        assert f">{word}</span>" in run_page.partition("</h1>")[2][:200]
        assert "converged" not in text(run_page) and "succeeded" not in text(run_page)
        if run.result is not None:
            assert f'<dt>Outcome</dt><dd class="">{word}</dd>' in run_page
    for surface in (html, page(service, "/")):
        assert "converged" not in text(surface) and "succeeded" not in text(surface)


def test_report_and_files(service: Service, experiment: str) -> None:
    report = text(page(service, f"/v1/experiments/{experiment}/report"))
    assert "converged" not in report and "succeeded" not in report
    reader = csv.DictReader(io.StringIO(page(service, f"/v1/experiments/{experiment}/exports/results.csv")))
    rows = sorted(reader, key=lambda row: int(row["position"]))
    assert [row["outcome"] for row in rows] == list(WORDS)
    assert {row["status"] for row in rows} <= {status.value for status in RunStatus}
    for run, word in zip(service.runs.read_all(experiment), WORDS, strict=True):
        assert f"{run.id} {run.candidate} {run.model} 0.001 {run.seed} {word}" in report
