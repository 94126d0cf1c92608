"""Faults and problems as data (RFC 9457): made by the service, read by the client, printed by the command line."""

from pydantic import BaseModel, ConfigDict

from orchestrator.faults import Fault as Fault
from orchestrator.faults import Source as Source
from orchestrator.faults import faults as faults
from orchestrator.faults import pointer as pointer
from orchestrator.faults import shown as shown
from orchestrator.faults import validation_faults as validation_faults


class Problem(BaseModel):
    """An error as RFC 9457 describes it, `application/problem+json`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()
    """Every fault of the request at once; empty where the request as such was fine."""
