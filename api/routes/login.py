"""Signing in to the pages with a key: a form, a session's cookie, and the way out. Programs send their key instead."""

import re
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import Headers

from api.auth.callers import COOKIE, Caller, presented_secret
from api.middleware.authentication import caller_of
from api.routes.context import State
from dashboards.render import ROOT_PATH, page
from orchestrator.store.admin.keyring import SESSION_SECONDS

router = APIRouter(include_in_schema=False)

MOST_FIELDS = 8
OUR_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")
"""A path on this service: browsers read two slashes, or a backslash, as another host."""


def our_path(text: str) -> str:
    """Return `text` if it is a path on this service, else the front page."""
    return text if OUR_PATH.fullmatch(text) else "/"


@router.get("/login")
def form(target: Annotated[str, Query(alias="next")] = "/") -> Response:
    """Show the form."""
    return page("login.html", target=our_path(target), trouble=None)


@router.post("/login")
async def log_in(request: Request, state: State) -> Response:
    """Exchange a key for a session, whose cookie no script and no other site can use."""
    address = caller_of(request.scope).address
    try:
        fields = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        trouble = f"This form has two fields; more than {MOST_FIELDS} are not read."
        return page("login.html", status=422, target="/", trouble=trouble)
    target = our_path(fields.get("next", ["/"])[0])
    key_text = fields.get("key", [""])[0].strip()
    wait_seconds = None if state.auth.callers.was_right(key_text) else state.auth.failures.wait(address)
    if wait_seconds is not None:
        trouble = f"Too many tries; wait {wait_seconds} s."
        refusal = page("login.html", status=429, target=target, trouble=trouble)
        refusal.headers["Retry-After"] = str(wait_seconds)
        return refusal
    key = await run_in_threadpool(state.services.keyring.open_with, key_text)
    if key is None:
        state.auth.failures.take(address)
        trouble = "This key opens nothing here: it is unknown, revoked or expired."
        return page("login.html", status=401, target=target, trouble=trouble)
    request.scope["bench.caller"] = Caller(address=address, key=key)
    token = await run_in_threadpool(state.services.keyring.log_in, key.id)
    for secret in (key_text, token):
        state.auth.callers.note(secret, right=True)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(
        COOKIE,
        token,
        max_age=int(SESSION_SECONDS),
        path=ROOT_PATH.get() or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request, state: State) -> Response:
    """End the session and forget its cookie."""
    secret = presented_secret(Headers(scope=request.scope))
    if secret is not None and secret.by_cookie:
        caller = Caller(address=caller_of(request.scope).address, key=await state.auth.callers.key(secret))
        request.scope["bench.caller"] = caller
        await run_in_threadpool(state.services.keyring.log_out, secret.secret)
        state.auth.callers.forget()
    answer = RedirectResponse("/login", 303)
    secure = request.url.scheme == "https"
    answer.delete_cookie(COOKIE, path=ROOT_PATH.get() or "/", httponly=True, samesite="strict", secure=secure)
    return answer
