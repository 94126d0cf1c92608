"""A campaign as an agent has it: a script over MCP's real stdio, against a real service whose runs are trained."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as Session
from mcp.client.stdio import StdioServerParameters
from mcp.types import TextContent

from api.client.client import Client
from orchestrator.keys import KeyRequest, Scope
from tests.factories.reporters import MemoryReporter
from tests.factories.stores import claim
from tests.integration.api_service import Service, serving
from worker.run import Folders, run

WORKLOAD: dict[str, Any] = {
    "task": {"kind": "regression", "dimension": 40, "a": 2.0, "b": 1.2},
    "budget": {"steps": 32, "batch_sequences": 16},
    "evaluation": {"every_steps": 32},
}
CAMPAIGN = {
    "name": "a better rate for SGD",
    "workload": WORKLOAD,
    "held_out": [{**WORKLOAD, "task": {**WORKLOAD["task"], "dimension": 1237}}],
    "baseline": {"optimizer": "sgd", "learning_rates": [0.05]},
    "confirmation_seeds": 8,
}
IDEAS = [("slower", "sgd", 0.02), ("faster, after Robbins and Monro", "sgd", 0.2)]


def train(service: Service, folder: Path) -> None:
    """Train what waits, as workers do."""
    while leases := claim(service.queue, cpus=8, limit=8):
        for lease in leases:
            service.attempts.hello(lease.run_id, lease.attempt, lease.token)
            folders = Folders(run_folder=folder / lease.run_id, dataset_folder=folder)
            service.attempts.finish(
                lease.run_id, lease.attempt, lease.token, run(lease.spec, MemoryReporter(), folders)
            )


async def research(session: Session, work: Callable[[], None]) -> dict[str, Any]:
    """Research like an agent: look around, try its ideas one after the other, read the results."""

    async def call(tool: str, **arguments: object) -> Any:
        answer = await session.call_tool(tool, arguments)
        message = "\n".join(part.text for part in answer.content if isinstance(part, TextContent))
        return {"refused": message} if answer.is_error else answer.structured_content

    tools = (await session.list_tools()).tools
    answers: dict[str, Any] = {
        "tools": {tool.name for tool in tools},
        "campaign": await call("show_campaign"),
        "optimizers": [optimizer["name"] for optimizer in (await call("list_optimizers"))["optimizers"]],
        "options": await call("list_optimizers", name="sgd"),
        "untried": await call("confirm_try", number=1),
        "code": await call("try_candidate", optimizer="os.system", lr=0.1),
        "option": await call("try_candidate", optimizer="sgd", lr=0.1, options={"exec": "x"}),
        "rate": await call("try_candidate", optimizer="sgd", lr=-1),
    }
    for note, optimizer, lr in IDEAS:
        idea = {"optimizer": optimizer, "lr": lr, "note": note}
        number = (await call("try_candidate", **idea))["number"]
        assert (await call("try_candidate", **idea))["number"] == number
        await asyncio.to_thread(work)
        await call("confirm_try", number=number)
        await asyncio.to_thread(work)
    return answers | {"ledger": await call("read_ledger")}


def drive(service: Service, key: str, file: Path, work: Callable[[], None]) -> dict[str, Any]:
    """The script, with `adapm-bench mcp` as a process of its own."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "api.cli", "mcp", str(file), "--url", service.url],
        env={**os.environ, "ADAPM_BENCH_KEY": key},
    )

    async def talk() -> dict[str, Any]:
        async with Session(server, read_timeout_seconds=120) as session:
            return await research(session, work)

    return asyncio.run(talk())


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the agent's answers, and the audit log."""
    folder = tmp_path_factory.mktemp("gate")
    file = folder / "campaign.json"
    file.write_text(json.dumps(CAMPAIGN))
    with serving(folder) as service:
        admin = service.keyring.create(KeyRequest(label="operator", scope=Scope.ADMIN)).secret
        agent = service.keyring.create(KeyRequest(label="agent", scope=Scope.SUBMITTER)).secret
        with Client(service.url, key=admin) as operator:
            read = drive(service, agent, file, lambda: train(service, folder))
            return read | {"audit": operator.audit(limit=100)}


def test_an_agent_finds_a_better_candidate_and_no_worse_one(answers: dict[str, Any]) -> None:
    ledger = answers["ledger"]
    assert [entry["note"] for entry in ledger["tries"]] == ["slower", "faster, after Robbins and Monro"]
    assert [entry["state"] for entry in ledger["confirmations"]] == ["not_shown", "improved"]
    assert [len(entry["results"]) for entry in ledger["confirmations"]] == [2, 2]
    assert all(result["difference"]["high"] < 0 for result in ledger["confirmations"][1]["results"])
    assert ledger["faults"] == []


def test_a_tool_refuses_code_unknown_options_and_untried_numbers(answers: dict[str, Any]) -> None:
    assert "try 1" in answers["untried"]["refused"]
    assert '"os.system": must be one of adamw, ' in answers["code"]["refused"]
    assert "exec" in answers["option"]["refused"]
    assert "lr" in answers["rate"]["refused"]
    assert answers["tools"] == {"show_campaign", "list_optimizers", "try_candidate", "confirm_try", "read_ledger"}
    assert "sgd" in answers["optimizers"]
    assert answers["options"]["name"] == "sgd"


def test_the_campaign_is_shown_without_its_held_out_workloads(answers: dict[str, Any]) -> None:
    assert answers["campaign"]["held_out_workloads"] == 1
    assert answers["campaign"]["workload"]["task"]["dimension"] == 40
    assert "1237" not in repr(answers["campaign"])


def test_an_agents_submissions_are_in_the_audit_log(answers: dict[str, Any]) -> None:
    lines = [line.action for line in answers["audit"] if line.label == "agent" and line.outcome < 300]
    assert lines.count("POST /v1/experiments") == 6, "two tries, two confirmations on two workloads each"
