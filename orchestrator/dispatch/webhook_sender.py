"""The posting of webhooks: a duty of the dispatcher process, fed by the database, never on a run's path.

    ended runs ─► messages ─► looked up, judged, posted to that very address ─► delivered, or tried again later

At least once: what was posted and not yet noted is posted again, under the same id, after a kill. A receiver answers
with 200 to 299 within seconds; redirects are not followed, and nothing of its answer but the status is read or kept.

One message of a webhook is posted at a time, and `AT_ONCE` in all: a receiver that hangs holds its place for some
seconds, and waits for longer with each try.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import httpx2
import structlog

from orchestrator.records import AnyExperiment
from orchestrator.store.database import Database
from orchestrator.store.leadership import DELIVERY_RENEW_SECONDS, POLL_SECONDS, Duty, Leadership
from orchestrator.store.outgoing.messages import DueMessage, Messages
from orchestrator.webhooks.policy import LookUp, WebhookPolicy, resolve_host
from orchestrator.webhooks.signing import SigningKey, SigningKeyError, fingerprint, signed_headers

log = structlog.get_logger(__name__)

POSTING_SECONDS = 0.1
"""Between two looks while messages are on their way: a webhook's next one waits for the one before."""
TRY_SECONDS = 15.0
"""Looking up, connecting, posting and the answer's first line, all together, however slowly each comes."""
AT_ONCE = 64
"""Messages that are posted at the same time."""
TIDY_SECONDS = 60.0
ROLE = "webhooks"
"""The role of the sender: one of all senders on a database posts."""
LEASE_SECONDS = 60.0
USER_AGENT = "adapm-bench"


class PostError(Exception):
    """A message could not be delivered; the text says why, and holds nothing of what the receiver answered."""


class WebhookSender(Duty):
    """Posts the messages of webhooks. Receivers may be away for hours: messages wait, for a day."""

    name = "webhooks"
    leadership: Leadership

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
        self.leadership = Leadership(database, holder, LEASE_SECONDS, ROLE, DELIVERY_RENEW_SECONDS)
        self._messages = Messages(database)
        self._look_up = look_up
        self._policy = policy
        self._key = key
        self._tls = httpx2.create_ssl_context(trust_env=False)
        self._threads = ThreadPoolExecutor(AT_ONCE, "webhooks")
        self._tidied_at = float("-inf")
        self._posting: dict[str, Future[bool]] = {}
        """By webhook."""

    def work(self) -> float:
        """Write messages of what has ended, and begin to post those that there is room for."""
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
            self._messages.tidy()
            self._tidied_at = time.monotonic()
        written = self._messages.write(self._look_up)
        self._posting = {id: delivery for id, delivery in self._posting.items() if not delivery.done()}
        due = self._messages.due(AT_ONCE - len(self._posting), tuple(self._posting))
        for message in due:
            post_it = partial(self._post, message)
            self._posting[message.webhook_id] = self._threads.submit(
                self._messages.deliver, message.id, message, post_it
            )
        if written or due:
            return 0.0
        return POSTING_SECONDS if self._posting else POLL_SECONDS

    def close(self) -> None:
        """Finish what is being posted."""
        self._threads.shutdown()

    def _post(self, message: DueMessage) -> None:
        self._policy.check(message.url)
        secret = self._key.secret(message.webhook_id)
        if fingerprint(secret) != message.secret_hash:
            raise SigningKeyError(
                "the data folder's webhooks.key is not the one that this webhook was added with; remove it and add it "
                "again"
            )
        asyncio.run(post(self._policy, message, secret, self._tls))


async def post(
    policy: WebhookPolicy,
    message: DueMessage,
    secret: str,
    tls: ssl.SSLContext | bool = True,
    look_up: LookUp = resolve_host,
) -> None:
    """Post one message to the one address that was judged. Raises `PostError`, or `AddressError`.

    By a client of its own: without a proxy or a netrc of the environment, which would go elsewhere than was judged, and
    without connections that are kept, whose certificate may have been judged by another name.
    """
    body = message.body.encode()
    headers = signed_headers(secret, message.id, int(time.time()), body)
    parts = urlsplit(message.url)
    headers |= {"Host": parts.netloc, "Content-Type": "application/json", "User-Agent": USER_AGENT}
    try:
        # It bounds the whole exchange; a limit of each read would let an answer drip for ever.
        client = httpx2.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=None)
        async with asyncio.timeout(TRY_SECONDS), client as http:
            address = await policy.resolve_address(message.url, look_up)
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
