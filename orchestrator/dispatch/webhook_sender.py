"""Webhooks are posted from here: a thread of the dispatcher, fed by the database, never on a run's path.

    ended runs ─► messages ─► looked up, judged, posted to that very address ─► delivered, or tried again later

At least once: what was posted and not yet noted is posted again, under the same id, after a kill. A receiver answers
with 200 to 299 within seconds; redirects are not followed, and nothing of its answer but the status is read or kept.

Nobody waits for another's receiver: one message of a webhook is posted at a time, a few to one host, and those that
failed at their last try share half of the places.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import httpx2
import structlog

from orchestrator.records import AnyExperiment
from orchestrator.store.database import Database
from orchestrator.store.leadership import Leadership
from orchestrator.store.outgoing.messages import DueMessage, Messages
from orchestrator.store.outgoing.webhooks import MOST_WEBHOOKS
from orchestrator.webhooks.policy import LookUp, WebhookPolicy, resolve_host
from orchestrator.webhooks.signing import SigningKey, SigningKeyError, fingerprint, signed_headers

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
TRY_SECONDS = 15.0
"""Looking up, connecting, posting and the answer's first line, all together, however slowly each comes."""
AT_ONCE, AT_ONE_HOST = 64, 8
"""Messages that are posted at the same time, in all and to one host and port."""
DOUBTFUL_SHARE = 0.5
"""Of both limits, for webhooks whose last try failed: however many hang, there is room for those that answer."""
THREADS = 32
"""For looking up names and for the database: more than hosts that an operator names, each of which holds up one."""
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


@dataclass(frozen=True, kw_only=True)
class _Posting:
    """A message on its way."""

    task: asyncio.Task[None]
    host: str
    is_doubtful: bool


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
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="webhooks", daemon=True)
        self._tidied_at = float("-inf")
        self._posting: dict[str, _Posting] = {}
        """By webhook."""
        self._failed: set[str] = set()
        """Webhooks whose last try failed."""

    def start(self) -> None:
        """Begin to post."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is being posted, then stop; the rest is posted after the next start."""
        self._stop.set()
        self._thread.join(DRAIN_SECONDS)
        self._leadership.resign()

    def tick(self) -> bool:
        """One look, and the end of all that it posts; whether anything was there to do."""

        async def post_and_settle() -> bool:
            async with _HttpClient() as client:
                busy = await self._post_due(client)
                await self._settle()
            return busy

        return asyncio.run(post_and_settle())

    async def _run(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "webhooks"))
        stopped = asyncio.create_task(asyncio.to_thread(self._stop.wait))
        async with _HttpClient() as client:
            while not stopped.done():
                try:
                    busy = await self._post_due(client)
                except Exception as error:  # noqa: BLE001 - a webhook that is removed meanwhile, a database that is away
                    busy = False
                    log.warning("webhooks cannot be looked after, trying again", error=str(error))
                if not busy:
                    tasks = [stopped, *(each.task for each in self._posting.values())]
                    await asyncio.wait(tasks, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await self._settle()

    async def _post_due(self, client: "_HttpClient") -> bool:
        """Begin to post what there is room for; whether there was anything to do."""
        written, due = await asyncio.to_thread(self._find)
        begun = [self._begin(client, message) for message in due]
        return bool(written) or any(begun)

    def _find(self) -> tuple[int, tuple[DueMessage, ...]]:
        """How many ends were looked at, and the messages that may be posted now."""
        if self._leadership.keep(RENEW_SECONDS) is None:
            return 0, ()
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
            self._messages.tidy(self._look_up)
            self._tidied_at = time.monotonic()
        written = self._messages.write(self._look_up)
        full = len(self._posting) >= AT_ONCE
        return written, () if full else self._messages.due(MOST_WEBHOOKS, tuple(self._posting))

    def _begin(self, client: "_HttpClient", message: DueMessage) -> bool:
        """Begin to post a message; False where there is no room for it, or its webhook's last one is on its way."""
        parts, doubtful = urlsplit(message.url), message.webhook_id in self._failed
        host = f"{parts.scheme}://{parts.netloc}"
        all_posting = tuple(self._posting.values())
        for posting, most in (
            (all_posting, AT_ONCE),
            ([each for each in all_posting if each.host == host], AT_ONE_HOST),
        ):
            doubted = sum(each.is_doubtful for each in posting)
            if len(posting) >= most or (doubtful and doubted >= most * DOUBTFUL_SHARE):
                return False
        task = asyncio.create_task(self._deliver(client, message))
        self._posting[message.webhook_id] = _Posting(task=task, host=host, is_doubtful=doubtful)
        task.add_done_callback(lambda _: self._posting.pop(message.webhook_id, None))
        return True

    async def _settle(self) -> None:
        """Wait until nothing is on its way."""
        while tasks := [each.task for each in self._posting.values()]:
            await asyncio.wait(tasks)

    async def _deliver(self, client: "_HttpClient", message: DueMessage) -> None:
        """Post one message, and note at once what became of it."""
        ids = {"webhook": message.webhook_id, "message": message.id, "tries": message.tries + 1}
        error: Exception | None = None
        try:
            self._policy.check(message.url)
            secret = self._secret(message)
            await post(client.http, self._policy, message, secret, client.look_up)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the message waits and is tried again
            log.warning("webhook not delivered, will be tried again", **ids, error=str(failure))
            error = failure
        (self._failed.discard if error is None else self._failed.add)(message.webhook_id)
        try:
            if error is None:
                await asyncio.to_thread(self._messages.confirm, message.id)
            else:
                await asyncio.to_thread(self._messages.postpone, message.id, str(error))
        except Exception as failure:  # noqa: BLE001 - a database that is away: the message is posted again, under its id
            log.warning("what became of a webhook's message cannot be noted", **ids, error=str(failure))

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
    look_up: LookUp = resolve_host,
    clock: Callable[[], float] = time.time,
) -> None:
    """Post one message to the one address that was judged. Raises `PostError`, or `AddressError`."""
    body = message.body.encode()
    headers = signed_headers(secret, message.id, int(clock()), body)
    parts = urlsplit(message.url)
    headers |= {"Host": parts.netloc, "Content-Type": "application/json", "User-Agent": USER_AGENT}
    try:
        async with asyncio.timeout(TRY_SECONDS):
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


class _HttpClient:
    """The way out: what posts, without a proxy or a netrc of the environment, which would go elsewhere than was judged,
    and without connections that are kept, whose certificate may have been judged by another name.

    A name is looked up once at a time, however many wait for it: a resolver that hangs holds one thread a name.
    """

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        # `post` bounds the whole exchange; a limit of each read would let an answer drip for ever.
        self.http = httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, limits=limits)
        self._looking: dict[tuple[str, int], asyncio.Task[tuple[str, ...]]] = {}

    async def __aenter__(self) -> Self:
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.__aexit__()

    async def look_up(self, host: str, port: int) -> tuple[str, ...]:
        """As `resolve_host`."""
        task = self._looking.get((host, port))
        if task is None:
            task = self._looking[host, port] = asyncio.create_task(resolve_host(host, port))
            task.add_done_callback(lambda done: self._end(host, port, done))
        return await asyncio.shield(task)  # one that waits no longer ends it for nobody else

    def _end(self, host: str, port: int, done: "asyncio.Task[tuple[str, ...]]") -> None:
        del self._looking[host, port]
        if not done.cancelled():
            done.exception()  # whoever still waits for it has it, too
