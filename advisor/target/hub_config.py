"""Finds the config.json of a hub model in the cache, or fetches it. Runs in the target interpreter, imports none of ours.

JSON lines, standard input to standard output, until the input ends:
    {"model": "org/name", "revision": null or a branch, tag or commit}
 -> {"ok": true, "config": {...}, "revision": commit or null}
 or {"ok": false, "error_type": "no_vllm" | "no_hub_client" | "model_unreachable" | "config_missing" | "config_unreadable",
     "error": "one line"}

The target interpreter does this because it holds the hub's client, its cache settings and its login. HF_HUB_OFFLINE,
HF_ENDPOINT and HF_TOKEN count as they do for vLLM.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import sys
import urllib.request
from urllib.parse import urlsplit


class Refusal(Exception):
    """An answer of `"ok": false`: its error type and one line."""

    def __init__(self, error_type: str, error: str):
        super().__init__(error)
        self.error_type = error_type


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not reach the protocol
    for line in sys.stdin:
        answers.write(json.dumps(respond(json.loads(line))) + "\n")
        answers.flush()


def respond(request: dict) -> dict:
    try:
        if not vllm_is_here():
            raise Refusal("no_vllm", f"{sys.executable} has no vLLM")
        path = config_path(request["model"], request.get("revision"))
        commit = re.search(r"/snapshots/([0-9a-f]{40})/", path)
        return {"ok": True, "config": read_config(path), "revision": commit.group(1) if commit else None}
    except Refusal as refusal:
        return {"ok": False, "error_type": refusal.error_type, "error": str(refusal)}


def vllm_is_here() -> bool:
    """Asked first: an interpreter without vLLM is the wrong one, whatever else it lacks."""
    return importlib.util.find_spec("vllm") is not None


def config_path(model: str, revision: str | None) -> str:
    """Path of config.json in the cache, after fetching it where that is needed and allowed."""
    unreachable = hub_out_of_reach()
    if unreachable:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the client would try for half a minute before it looks into its cache
    try:
        from huggingface_hub import errors as hub
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise Refusal("no_hub_client", f"{sys.executable} has no huggingface_hub: {error}") from None
    try:
        return hf_hub_download(model, "config.json", revision=revision, local_files_only=unreachable)
    except (hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled):  # the first is a kind of EntryNotFoundError
        error = f"hub model {model} is neither cached nor reachable"
    except hub.EntryNotFoundError:
        raise Refusal("config_missing", f"hub model {model} holds no config.json") from None
    except hub.GatedRepoError:  # a kind of RepositoryNotFoundError
        error = f"hub model {model} is gated: this account may not read it"
    except hub.RepositoryNotFoundError:
        error = f"the hub knows no model {model}, or does not show it to this account"
    except hub.RevisionNotFoundError:
        error = f"hub model {model} has no revision {revision}"
    except Exception as problem:  # a connection error of whatever HTTP client this release uses
        error = f"hub model {model} is neither cached nor reachable ({type(problem).__name__})"
    raise Refusal("model_unreachable", error)


def hub_out_of_reach() -> bool:
    """Whether the hub's name cannot be looked up. Behind a proxy this cannot be told: the proxy does the looking up."""
    if urllib.request.getproxies():
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False


def read_config(path: str) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise Refusal("config_unreadable", f"{path} is not valid JSON: {error}") from None


if __name__ == "__main__":
    main()
