"""Campaigns over REST: open one, register a try before any run of it, submit it, ask for its verdict, read the ledger.

No answer but that of `/held-out`, which is for admins, tells what is held out.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.records import Page
from api.routes.context import (
    ID_PATTERN,
    CallerDependency,
    CampaignsDependency,
    Cursor,
    IdempotencyKey,
    JsonRoute,
    Limit,
    cut_page,
    json_response,
    problems,
)
from orchestrator.campaigns.ledger import (
    MOST_TRIES,
    AnyCampaign,
    CampaignRecord,
    CampaignSpec,
    HeldOutWorkloads,
    Ledger,
    TryRecord,
    TryRequest,
)

router = APIRouter(prefix="/campaigns", tags=["campaigns"], route_class=JsonRoute)

CampaignIdPath = Annotated[str, Path(pattern=ID_PATTERN)]
PlacePath = Annotated[int, Path(ge=1, le=MOST_TRIES, description="Of the try in its campaign, from 1.")]


@router.post("", status_code=201, response_model=CampaignRecord, responses=problems(409, 413, 422))
def open_campaign(spec: CampaignSpec, campaigns: CampaignsDependency, caller: CallerDependency) -> Response:
    """Fix what a campaign is about: workload, baseline, error, quotas, what is held out. None of it changes again."""
    opened = campaigns.open(spec, by=caller.key_id())
    return json_response(opened, 201, {"Location": f"/v1/campaigns/{opened.id}"})


@router.get("", response_model=Page[AnyCampaign], responses=problems(404, 422))
def campaigns(campaigns: CampaignsDependency, limit: Limit = 50, before: Cursor = None) -> Response:
    """Campaigns, the newest first; `before` is the last id of the page before."""
    return json_response(cut_page(campaigns.page(limit=limit + 1, before=before), limit, lambda each: each.id))


@router.get("/{campaign_id}", response_model=CampaignRecord, responses=problems(404))
def campaign(campaign_id: CampaignIdPath, campaigns: CampaignsDependency) -> Response:
    """One campaign, with what is spent and what is left; of held-out workloads only how many there are."""
    return json_response(campaigns.get(campaign_id))


@router.get("/{campaign_id}/held-out", response_model=HeldOutWorkloads, responses=problems(403, 404))
def held_out_workloads(campaign_id: CampaignIdPath, campaigns: CampaignsDependency) -> Response:
    """The held-out workloads, and how tries stand on them."""
    return json_response(campaigns.held_out_workloads(campaign_id))


@router.get("/{campaign_id}/ledger", response_model=Ledger, responses=problems(404))
def ledger(campaign_id: CampaignIdPath, campaigns: CampaignsDependency) -> Response:
    """Every step of a campaign, judged again from the stored results."""
    return json_response(campaigns.ledger(campaign_id))


@router.get("/{campaign_id}/tries", response_model=Page[TryRecord], responses=problems(404))
def tries(campaign_id: CampaignIdPath, campaigns: CampaignsDependency) -> Response:
    """All tries of a campaign with their verdicts, the first one first."""
    return json_response(Page[TryRecord](items=campaigns.tries(campaign_id)))


@router.post("/{campaign_id}/tries", status_code=201, response_model=TryRecord, responses=problems(404, 409, 413, 422))
def register(
    campaign_id: CampaignIdPath,
    tried: TryRequest,
    campaigns: CampaignsDependency,
    caller: CallerDependency,
    key: IdempotencyKey = None,
) -> Response:
    """Register a try before any run of it: what is tried is frozen, its seeds are drawn, its level is spent. The same
    idempotency key gives the same try again."""
    found = campaigns.register(campaign_id, tried, by=caller.key_id(), key=key)
    return json_response(found, 201, {"Location": f"/v1/campaigns/{campaign_id}/tries/{found.place}"})


@router.get("/{campaign_id}/tries/{place}", response_model=TryRecord, responses=problems(404, 422))
def one_try(campaign_id: CampaignIdPath, place: PlacePath, campaigns: CampaignsDependency) -> Response:
    """One try: improved, not shown, or undecided yet, with its interval and what it has spent."""
    return json_response(campaigns.get_try(campaign_id, place))


@router.post("/{campaign_id}/tries/{place}/submit", response_model=TryRecord, responses=problems(404, 409, 422))
def submit(
    campaign_id: CampaignIdPath, place: PlacePath, campaigns: CampaignsDependency, caller: CallerDependency
) -> Response:
    """Queue the runs of a registered try, charged to the caller's key; repeating it changes nothing."""
    return json_response(campaigns.submit(campaign_id, place, by=caller.key_id()))


@router.post("/{campaign_id}/tries/{place}/retry", response_model=TryRecord, responses=problems(404, 422))
def retry(campaign_id: CampaignIdPath, place: PlacePath, campaigns: CampaignsDependency) -> Response:
    """Let a try go on that a failed, cancelled or paused run holds up; repeating it changes nothing."""
    return json_response(campaigns.retry(campaign_id, place))
