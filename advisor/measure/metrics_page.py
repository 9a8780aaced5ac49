"""A server's /metrics page, kept in the launch's folder: evidence of what ran, read again without the server."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx

NAME = "metrics.prom"
_READ_TIMEOUT_S = 10.0


def keep_page(server_url: str, folder: Path) -> None:
    """Write the page to `folder`/metrics.prom. No file where the server has none: its owner may have switched it off."""
    with contextlib.suppress(httpx.HTTPError):
        # Proxies of the environment are not for a server of this machine, and without verify=False the certificates are read
        # from disk each time, for an address that has no TLS.
        page = httpx.get(f"{server_url}/metrics", timeout=_READ_TIMEOUT_S, trust_env=False, verify=False)
        if page.status_code == httpx.codes.OK:
            (folder / NAME).write_text(page.text, encoding="utf-8")


def kept_page(folder: Path) -> str:
    """The page of a launch, "" where none was kept."""
    try:
        return (folder / NAME).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
