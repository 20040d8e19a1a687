"""Hub ids against a hub of our own on this machine: what is fetched, what is left, and errors in one line."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest
import torch
from checkpoints.spoiled import CONFIG, bert_state
from checkpoints.test_formats import write_shards
from safetensors.torch import save_file
from trust.command import run

from attnlaw import audit
from attnlaw.checkpoints.hub import is_hub_id

COMMITS = {"main": "0123456789abcdef0123456789abcdef01234567", "refs/pr/1": "1" * 40, "step-1": "2" * 40}


@dataclass
class Hub:
    """Repositories as {id: {file: bytes}}, and every request for a file that was answered."""

    repositories: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    fetched: list[str] = field(default_factory=list)
    port: int = 0

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        path = [unquote(part) for part in request.path.split("?")[0].strip("/").split("/")]
        if path[:2] == ["api", "models"]:
            repository = "/".join(path[2:4])
            commit = COMMITS.get(path[5] if "revision" in path else "main")
            if repository in self.gated:
                return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
            if repository not in self.repositories:
                return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
            if commit is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            siblings = [{"rfilename": name} for name in self.repositories[repository]]
            body = {"id": repository, "sha": commit, "siblings": siblings, "private": False, "gated": False}
            return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()
        repository, revision, name = "/".join(path[:2]), path[3], "/".join(path[4:])
        older = self.repositories.get(f"{repository}@{revision}", {})
        content = older.get(name) or self.repositories[repository][name]
        if request.command == "GET":
            self.fetched.append(name)
        return (
            200,
            {"X-Repo-Commit": COMMITS[revision], "ETag": f'"{hashlib.sha1(content).hexdigest()}"'},
            content,
        )


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    served = Hub(repositories(tmp_path), gated={"owner/gated"})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = served.answer(self)
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


def repositories(folder: Path) -> dict[str, dict[str, bytes]]:
    """A model in one file beside much else, one in shards, a pickled one, and one without weights."""
    work = folder / "files"
    work.mkdir()
    config = json.dumps(CONFIG).encode()
    save_file(bert_state(), work / "model.safetensors")
    torch.save(bert_state(), work / "pytorch_model.bin")
    index = write_shards(work, bert_state(), "sharded", "safetensors", save_file)
    shards = {
        file.name.replace("sharded", "model"): file.read_bytes().replace(b'"sharded-', b'"model-')
        for file in [index, *work.glob("sharded-*")]
    }
    whole = {"config.json": config, "model.safetensors": (work / "model.safetensors").read_bytes()}
    pickled = (work / "pytorch_model.bin").read_bytes()
    save_file({name: 2 * value for name, value in bert_state().items()}, work / "older.safetensors")
    older = {"model.safetensors": (work / "older.safetensors").read_bytes()}
    beside = {
        "modeling_evil.py": b"raise SystemExit(9)",
        "pytorch_model.bin": pickled,
        "tokenizer.json": b"{}",
    }
    return {
        "owner/whole": whole | beside,
        "owner/whole@step-1": older,
        "owner/whole@refs/pr/1": older,
        "owner/shards": {"config.json": config, **shards},
        "owner/pickled": {"config.json": config, "pytorch_model.bin": pickled},
        "owner/empty": {"README.md": b"nothing here"},
    }


def audits(hub: Hub | None, home: Path, *models: str, **changes: str) -> tuple[Any, list[str]]:
    """The summaries and the refusals of `attnlaw audit --json`, in a process that knows no hub but ours."""
    port = hub.port if hub else closed_port()
    environment = {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "",
        "NO_PROXY": "127.0.0.1",
        **changes,
    }
    outcome = run("audit", *models, "--json", "--jobs", "1", folder=home, environment=environment)
    assert outcome.output, outcome.errors
    return json.loads(outcome.output), outcome.refusals()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.slow
def test_models_by_their_ids(hub: Hub, tmp_path: Path) -> None:
    whole, refused = audits(hub, tmp_path, "owner/whole")
    assert refused == []
    assert whole["model"] == "owner/whole"
    assert whole["proxies"] == audit(bert_state(), heads=2, jobs=1).summary["proxies"]
    assert audits(hub, tmp_path, "owner/whole") == (whole, [])
    # Safetensors before pickles, never code or a tokenizer; the second time from the cache.
    assert sorted(hub.fetched) == ["config.json", "model.safetensors"]

    hub.fetched.clear()
    models = ("owner/shards", "owner/pickled", "owner/unknown", "owner/gated", "owner/empty")
    summaries, refused = audits(hub, tmp_path, *models)
    assert [(summary["model"], summary["layers"]) for summary in summaries] == [
        (model, 3) for model in models[:2]
    ]
    assert len(hub.fetched) == 5 + 2
    expected = (
        "not a model on http://127.0.0.1",
        "this model is gated; accept",
        "this repository holds no safetensors",
    )
    for line, model, said in zip(refused, models[2:], expected, strict=True):
        assert line.startswith(f"attnlaw: {model}: ")
        assert said in line

    hub.fetched.clear()
    cached, (absent,) = audits(None, tmp_path, "owner/whole", "owner/unknown")  # no hub: the cache serves
    assert cached == [whole]
    assert "cannot be reached" in absent
    cached, (absent,) = audits(hub, tmp_path, "owner/whole", "owner/unknown", HF_HUB_OFFLINE="1")
    assert cached == [whole]
    assert "this is not a file or directory here" in absent
    assert hub.fetched == []


@pytest.mark.slow
def test_a_revision_of_a_model(hub: Hub, tmp_path: Path) -> None:
    """Both are in one cache; its directory stands for what is called main, each snapshot for itself."""
    models = ("owner/whole@step-1", "owner/whole@refs/pr/1", "owner/whole", "owner/whole@absent")
    (first, second, main), (refused,) = audits(hub, tmp_path, *models)
    assert [first["model"], second["model"]] == list(models[:2])
    assert "owner/whole has no revision absent on http://127.0.0.1" in refused
    twice = audit({name: 2 * value for name, value in bert_state().items()}, heads=2, jobs=1).summary
    assert first["proxies"] == second["proxies"] == twice["proxies"] != main["proxies"]

    hub.fetched.clear()
    cached, (refused,) = audits(None, tmp_path, "owner/whole@step-1", "owner/whole@absent")
    # The growth of proxies belongs to several models.
    assert cached == [{key: value for key, value in first.items() if not key.startswith("growth")}]
    assert refused.startswith("attnlaw: owner/whole@absent: this is not a file or directory here")

    cache = tmp_path / "hub" / "models--owner--whole"
    assert (cache / "snapshots" / COMMITS["main"] / "model.safetensors").is_symlink()
    summaries, _ = audits(None, tmp_path, str(cache), str(cache / "snapshots" / COMMITS["step-1"]))
    assert [summary["proxies"] for summary in summaries] == [main["proxies"], first["proxies"]]
    (cache / "refs" / "main").unlink()
    summaries, (refused,) = audits(None, tmp_path, str(cache), "owner/whole@step-1")
    assert "3 snapshots (0123456789abcdef" in refused
    assert [summary["model"] for summary in summaries] == ["owner/whole@step-1"]
    assert hub.fetched == []

    summaries, (missing,) = audits(hub, tmp_path, "owner/models--a--b", "owner/whole")
    assert "this is not a file or directory here, and not a valid id on a model hub" in missing


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlaw.checkpoints.open import open_model
    from attnlaw.core.errors import InputError

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"no such file or directory.*pip install 'attnlaw\[hub\]'"):
        open_model("owner/name")
    with pytest.raises(InputError, match=r"no such file or directory; give a checkpoint file"):
        open_model("folder/absent.safetensors")


@pytest.mark.parametrize(
    "text",
    ["owner", "/owner/name", "./name", "../name", "a/b/c", "owner/", "a b/c", "~/x", "a/b@", "a@b", "a/b@/c"],
)
def test_paths_are_not_ids(text: str) -> None:
    assert not is_hub_id(text)
