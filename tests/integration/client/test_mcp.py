"""The gate as an agent has it: a script over MCP's real stdio, against a real service whose runs are really trained."""

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from mcp import Client as Session
from mcp.client.stdio import StdioServerParameters
from mcp.types import TextContent

from api.auth.scopes import ROUTES, STREAMS, Access
from api.client.client import Client
from orchestrator.keys import KeyRequest, Scope
from orchestrator.store.tables import campaign_experiments, runs
from tests.factories.stores import claim
from tests.integration.api_service import Service, serving
from worker.reporting.reporter import MemoryReporter
from worker.run import Folders, run

WORKLOAD: dict[str, Any] = {
    "task": {"kind": "regression", "dimension": 40, "a": 2.0, "b": 1.2},
    "budget": {"steps": 32, "batch_sequences": 16},
    "evaluation": {"every_steps": 32},
}
SECRET = 1237
"""A dimension that nothing else has."""
TOLD = re.compile(rf"dimension[^0-9]{{1,40}}{SECRET}\b")
HELD_OUT = {**WORKLOAD, "task": {**WORKLOAD["task"], "dimension": SECRET}}
CAMPAIGN = {
    "name": "a better rate for SGD",
    "workload": WORKLOAD,
    "held_out": [HELD_OUT],
    "baseline": {"optimizer": "sgd", "lr": 0.05},
    "gain": 0.3,
    "error": 0.3,
    "most_seeds": 24,
}
QUERIES = (
    "GET /v1/points?run={run_id}&metric=val_loss",
    "GET /v1/runs?experiment_id={experiment_id}",
    "GET /v1/fits?experiment={experiment_id}",
    "GET /v1/profiles?experiment={experiment_id}",
    "GET /compare?runs={run_id}",
    "GET /profiles?experiments={experiment_id}",
    "GET /new?from={experiment_id}",
    "GET /v1/runs/table?where=experiment={experiment_id}",
    "GET /runs.csv",
)
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
    """What an agent does: looks around, tries its ideas one after the other, reads what came of it."""

    async def call(tool: str, **arguments: object) -> Any:
        answer = await session.call_tool(tool, arguments)
        said = "\n".join(part.text for part in answer.content if isinstance(part, TextContent))
        return {"refused": said} if answer.is_error else answer.structured_content

    tools = (await session.list_tools()).tools
    campaign_id = (await call("list_campaigns"))["campaigns"][0]["id"]
    told: dict[str, Any] = {
        "tools": {tool.name for tool in tools},
        "workloads": await call("list_workloads"),
        "optimizers": [each["name"] for each in (await call("list_optimizers"))["optimizers"]],
        "options": await call("list_optimizers", name="sgd"),
        "campaign": await call("get_campaign", campaign_id=campaign_id),
        "unregistered": await call("submit_try", campaign_id=campaign_id, place=1),
        "code": await call("register_try", campaign_id=campaign_id, optimizer="os.system", lr=0.1),
        "option": await call("register_try", campaign_id=campaign_id, optimizer="sgd", lr=0.1, options={"exec": "x"}),
        "rate": await call("register_try", campaign_id=campaign_id, optimizer="sgd", lr=-1),
        "verdicts": [],
    }
    for note, optimizer, lr in IDEAS:
        idea = {"campaign_id": campaign_id, "optimizer": optimizer, "lr": lr, "note": note, "idempotency_key": note[:6]}
        place = (await call("register_try", **idea))["place"]
        assert (await call("register_try", **idea))["place"] == place
        await call("submit_try", campaign_id=campaign_id, place=place)
        await asyncio.to_thread(work)
        told["verdicts"].append(await call("get_verdict", campaign_id=campaign_id, place=place))
    return told | {
        "tries": await call("list_tries", campaign_id=campaign_id),
        "ledger": await call("read_ledger", campaign_id=campaign_id),
        "retried": await call("retry_try", campaign_id=campaign_id, place=1),
    }


def drive(service: Service, key: str, work: Callable[[], None]) -> dict[str, Any]:
    """The script, with `adapm-bench mcp` as a process of its own."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "api.cli", "mcp", "--url", service.url],
        env={**os.environ, "ADAPM_BENCH_KEY": key},
    )

    async def talk() -> dict[str, Any]:
        async with Session(server, read_timeout_seconds=120) as session:
            return await research(session, work)

    return asyncio.run(talk())


def ask_everything(service: Service, key: str) -> dict[str, httpx2.Response]:
    """The answer to every GET that is no stream, with the ids of what is held out where one is wanted, to whoever may
    see most."""
    mine = sa.select(campaign_experiments.c.experiment_number).where(campaign_experiments.c.workload > 0)
    with service.database.reading() as connection:
        query = sa.select(runs.c.id, runs.c.experiment_id).where(runs.c.experiment_number.in_(mine)).limit(1)
        run_id, experiment_id = connection.execute(query).one()
    ids = {"run_id": run_id, "experiment_id": experiment_id, "name": "results.csv", "form": "json", "suffix": "csv"}
    ids |= {"attempt": "1"}
    asked, headers = {}, {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False, timeout=120) as http:
        for route in (*ROUTES[Access.VIEWER], *ROUTES[Access.SUBMITTER], *QUERIES):
            method, _, path = route.partition(" ")
            names = set(re.findall(r"\{(\w+)\}", path))
            if method == "GET" and route not in STREAMS and names <= ids.keys():
                asked[route] = http.get(path.format(**ids))
    return asked


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the agent was told, and what an admin and the audit log know."""
    folder = tmp_path_factory.mktemp("gate")
    with serving(folder) as service:
        admin = service.keyring.create(KeyRequest(label="operator", scope=Scope.ADMIN)).secret
        agent = service.keyring.create(KeyRequest(label="agent", scope=Scope.SUBMITTER)).secret
        with Client(service.url, key=admin) as operator:
            campaign = operator.open_campaign(CAMPAIGN)
            found = drive(service, agent, lambda: train(service, folder))
            return found | {
                "held_out": operator.held_out_workloads(campaign.id),
                "audit": operator.audit(limit=100),
                "everything": repr([*operator.experiments(), *operator.runs()]),
                "asked": ask_everything(service, admin),
            }


def test_an_agent_finds_what_is_better_and_is_refused_what_is_not(told: dict[str, Any]) -> None:
    slower, faster = told["verdicts"]
    assert slower["state"] == "not_shown"
    assert faster["state"] == "improved"
    assert faster["improvement"]["high"] < 0
    assert faster["verdict"].startswith("Improved: the mean difference in excess risk over ")
    assert [each["state"] for each in told["tries"]["tries"]] == ["not_shown", "improved"]
    assert told["ledger"]["faults"] == []
    assert [each["kind"] for each in told["ledger"]["entries"]].count("registered") == 2


def test_what_an_agent_must_not_do_is_refused_in_words(told: dict[str, Any]) -> None:
    assert "has no try 1; register it first" in told["unregistered"]["refused"]
    assert '/optimizer: "os.system": must be one of adamw, ' in told["code"]["refused"]
    assert "exec" in told["option"]["refused"]
    assert "lr" in told["rate"]["refused"]
    assert {"register_try", "submit_try", "get_verdict", "read_ledger", "list_optimizers"} <= told["tools"]
    assert "sgd" in told["optimizers"]
    assert told["options"]["name"] == "sgd"


def test_no_tool_and_no_route_tells_what_is_held_out(told: dict[str, Any]) -> None:
    assert [(each.place, each.workload) for each in told["held_out"].tries] == [(2, 1)]
    assert told["held_out"].workloads[0].task.dimension == SECRET
    tools = {name: value for name, value in told.items() if name not in ("held_out", "audit", "asked")}
    assert not TOLD.search(repr(tools))
    assert TOLD.search(repr(told["held_out"]))
    assert told["campaign"]["held_out"] == 1
    asked: dict[str, httpx2.Response] = told["asked"]
    assert len(asked) > 60
    for route, answer in asked.items():
        assert not TOLD.search(answer.text), route
        assert answer.status_code in (200, 404, 422), route
        if "{run_id}" in route.partition("?")[0] or "{experiment_id}" in route.partition("?")[0]:
            assert answer.status_code == 404, route


def test_what_an_agent_does_is_in_the_audit_log(told: dict[str, Any]) -> None:
    mine = [line.action for line in told["audit"] if line.label == "agent" and line.outcome < 300]
    assert mine.count("POST /v1/campaigns/{campaign_id}/tries") == 4  # each twice, by one idempotency key
    assert mine.count("POST /v1/campaigns/{campaign_id}/tries/{place}/submit") == 2
