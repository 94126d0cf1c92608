"""Whether a service answers: asked by whoever starts it, relies on it, or finds its note."""


def answers(url: str, timeout_seconds: float = 2.0, path: str = "/healthz") -> bool:
    """Whether the service at `url` is there and reaches its database."""
    import httpx2  # a client, which the service itself has no use for

    try:
        # A proxy of the environment is not meant for this machine's own addresses; reading certificates, which only
        # HTTPS needs, takes longer than all of the rest.
        https = url.startswith("https:")
        return httpx2.get(f"{url}{path}", timeout=timeout_seconds, trust_env=False, verify=https).status_code == 200
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
