"""Submissions over REST: small ones that come at once share a thread and a transaction, a large one has its own."""

from fastapi.concurrency import run_in_threadpool

from api.gathered import Gathered
from orchestrator.records import Submission
from orchestrator.service import Bench
from orchestrator.submitting import Proposal


class Submissions:
    """Where the routes submit experiments."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._together = Gathered[Proposal, Submission](bench.submit_together)

    async def __call__(self, proposal: Proposal) -> Submission:
        """Queue an experiment durably; raises as `Bench.submit`."""
        if self._bench.is_quick(proposal.spec):
            return await self._together(proposal)
        (answer,) = await run_in_threadpool(self._bench.submit_together, [proposal])
        if isinstance(answer, Exception):
            raise answer
        return answer
