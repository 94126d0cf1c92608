"""Webhooks are posted from here: a thread of the dispatcher, fed by the database, never on a run's path.

    ended runs ─► messages ─► looked up, judged, posted to that very address ─► delivered, or tried again later

At least once: what was posted and not yet noted is posted again, under the same id, after a kill. A receiver answers
with 200 to 299 within seconds; redirects are not followed, and nothing of its answer but the status is read or kept.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import httpx2
import structlog

from orchestrator.errors import OrchestratorError
from orchestrator.records import AnyExperiment
from orchestrator.store.database import Database
from orchestrator.store.leadership import Leadership
from orchestrator.store.webhook_messages import DueMessage, Messages
from orchestrator.webhook_policy import LookUp, WebhookPolicy, looked_up
from orchestrator.webhook_signing import SigningKey, SigningKeyError, fingerprint, signed_headers

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
TRY_SECONDS = 15.0
"""Looking up, connecting, posting and the answer's first line, all together."""
AT_ONCE = 8
"""Messages that are posted at the same time: one slow receiver does not hold up the others."""
TIDY_SECONDS = 60.0
DRAIN_SECONDS = 5.0
"""How long a stop waits for what is being posted; what was not noted is posted again after the next start."""
ROLE = "webhooks"
"""Of all senders on one database one posts."""
LEASE_SECONDS = 60.0
RENEW_SECONDS = 5.0
USER_AGENT = "adapm-bench"


class PostError(Exception):
    """A message could not be delivered; the text says why, and holds nothing of what the receiver answered."""


class WebhookSender:
    """A thread that posts what webhooks are to be told. Receivers may be away for hours: messages wait, for a day."""

    def __init__(
        self,
        database: Database,
        look_up: Callable[[str], AnyExperiment],
        policy: WebhookPolicy,
        key: SigningKey,
        *,
        holder: str,
    ) -> None:
        """`look_up` finds an experiment; `holder` names this sender among those on the database, as in `Leadership`."""
        self._messages = Messages(database)
        self._leadership = Leadership(database, holder, LEASE_SECONDS, ROLE)
        self._look_up = look_up
        self._policy = policy
        self._key = key
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._renewed_at = self._tidied_at = float("-inf")
        self._leads = False

    def start(self) -> None:
        """Begin to post."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is being posted, then stop; the rest is posted after the next start."""
        self._stop.set()
        self._thread.join(DRAIN_SECONDS)
        try:
            self._leadership.resign()
        except OrchestratorError as error:
            log.warning("another sender has to wait for this one's lease to run out", error=str(error))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                busy = self.tick()
            except Exception as error:  # noqa: BLE001 - a webhook that is removed meanwhile, a database that is away
                busy = False
                log.warning("webhooks cannot be looked after, trying again", error=str(error))
            if not busy:
                self._stop.wait(POLL_SECONDS)

    def tick(self) -> bool:
        """One look; whether anything was there to do."""
        if not self._lead():
            return False
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
            self._messages.tidy(self._look_up)
            self._tidied_at = time.monotonic()
        written = self._messages.write(self._look_up)
        due = self._messages.due(AT_ONCE)
        if due:
            asyncio.run(self._post_all(due))
        return bool(written or due)

    def _lead(self) -> bool:
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_SECONDS:
            self._leads = self._leadership.hold() is not None
            self._renewed_at = now
        return self._leads

    async def _post_all(self, due: Sequence[DueMessage]) -> None:
        async with _browser() as http:
            await asyncio.gather(*(self._deliver(http, each) for each in due))

    async def _deliver(self, http: httpx2.AsyncClient, message: DueMessage) -> None:
        """Post one message, and note at once what became of it."""
        try:
            self._policy.check(message.url)
            secret = self._secret(message)
            await post(http, self._policy, message, secret)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message waits and is tried again
            ids = {"webhook": message.webhook_id, "message": message.id, "tries": message.tries + 1}
            log.warning("webhook not delivered, will be tried again", **ids, error=str(error))
            await asyncio.to_thread(self._messages.failed, message.id, str(error))
        else:
            await asyncio.to_thread(self._messages.delivered, message.id)

    def _secret(self, message: DueMessage) -> str:
        secret = self._key.secret(message.webhook_id)
        if fingerprint(secret) != message.secret_hash:
            raise SigningKeyError(
                "the data folder's webhooks.key is not the one that this webhook was added with; remove it and add it "
                "again"
            )
        return secret


async def post(
    http: httpx2.AsyncClient,
    policy: WebhookPolicy,
    message: DueMessage,
    secret: str,
    look_up: LookUp = looked_up,
    clock: Callable[[], float] = time.time,
) -> None:
    """Post one message to the one address that was judged. Raises `PostError`, or `AddressError`."""
    body = message.body.encode()
    headers = signed_headers(secret, message.id, int(clock()), body)
    parts = urlsplit(message.url)
    headers |= {"Host": parts.netloc, "Content-Type": "application/json", "User-Agent": USER_AGENT}
    try:
        async with asyncio.timeout(TRY_SECONDS):
            address = await policy.address_of(message.url, look_up)
            url = httpx2.URL(message.url).copy_with(host=address)
            named = {"sni_hostname": parts.hostname}  # certificates are judged by the name, not by the address
            async with http.stream("POST", url, content=body, headers=headers, extensions=named) as answer:
                status = answer.status_code
    except TimeoutError as error:
        raise PostError(f"no answer within {TRY_SECONDS:g} s") from error
    except httpx2.HTTPError as error:
        raise PostError(f"not delivered: {str(error) or type(error).__name__}") from error
    if 300 <= status < 400:
        raise PostError(f"answered {status}: redirects are not followed; name the URL that it leads to")
    if not 200 <= status < 300:
        raise PostError(f"answered {status}; 200 to 299 confirm a message")


def _browser() -> httpx2.AsyncClient:
    """What posts: without a proxy or a netrc of the environment, which would go elsewhere than was judged."""
    timeout = httpx2.Timeout(TRY_SECONDS)
    return httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout)
