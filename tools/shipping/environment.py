"""An empty environment with one installed file, used in an empty directory; and the log of what it did."""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tools" / "shipping"
MODEL = "examples/tiny-decoder"
WAIT = 120  # seconds for a server
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@dataclass
class Log:
    """What went wrong; every line is printed as it comes."""

    failures: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def check(self, fine: bool, text: str) -> None:
        self.say(f"  {'ok  ' if fine else 'FAIL'} {text}")
        if not fine:
            self.failures.append(text)


@dataclass
class Environment:
    """`folder` holds the environment, the directory `work` in which all runs, and a home."""

    name: str
    folder: Path
    log: Log

    @property
    def bin(self) -> Path:
        return self.folder / "env" / "bin"

    @property
    def packages(self) -> Path:
        return next((self.folder / "env" / "lib").glob("python*")) / "site-packages"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def install(self, python: str, file: str, source: Path) -> float:
        """Make it: the project's constraints, no pip inside, the watch, examples as a user copies them.

        Returns its megabytes.
        """
        self.folder.mkdir()
        subprocess.run([python, "-m", "venv", "--without-pip", str(self.folder / "env")], check=True)
        options = ["--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*PIP, "--python", str(self.bin / "python"), "install", *options, file], check=True)
        megabytes = size(self.packages)
        shutil.copy(HERE / "watch.py", self.packages / "release_watch.py")
        (self.packages / "release_watch.pth").write_text("import release_watch\n")
        self.work.mkdir()
        shutil.copytree(source / "examples", self.work / "examples")
        for script in ("inputs.py", "studies.py"):
            shutil.copy(HERE / script, self.folder)
        return megabytes

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "HF_HOME": str(self.folder / "hf"),
            "HF_HUB_OFFLINE": "1",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "FORBIDDEN_FOLDER": str(ROOT),
            "FORBIDDEN_LOG": str(self.folder / "forbidden"),
        }

    def run(self, words: list[str], status: int = 0, says: str = "", shown: str = "") -> str:
        """Run a program of the environment; what it printed. The exit status, and `says`, must be right."""
        before = children_seconds()
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        used = children_seconds() - before
        output = (done.stdout + done.stderr).strip()
        fine = done.returncode == status and says in output and "Traceback" not in output
        line = shown or shlex.join(words)
        self.log.check(fine, f"{self.name}: {line}  ({used:.1f} CPU s, status {done.returncode})")
        if not fine:
            self.log.say("\n".join(f"       {part}" for part in output.splitlines()[-12:]))
        return done.stdout

    def attnlaw(self, command: str, status: int = 0, says: str = "") -> str:
        return self.run(["attnlaw", *shlex.split(command.format(model=MODEL))], status, says)

    def serve(self, command: str) -> None:
        """Start a command that tells an address, get its page, and interrupt it."""
        output = self.folder / "output"
        with output.open("wb") as out, subprocess.Popen(
            [str(self.bin / "attnlaw"), *shlex.split(command)],
            cwd=self.work, env=self.variables, stdout=out, stderr=out,
        ) as server:  # fmt: skip
            page, address = b"", None
            for _ in range(WAIT):
                time.sleep(1)
                address = re.search(rb"http://\S+", output.read_bytes())
                if address or server.poll() is not None:
                    break
            if address:
                direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with direct.open(address[0].decode(), timeout=WAIT) as answer:
                    page = answer.read()
            server.send_signal(signal.SIGINT)
            status = server.wait(timeout=WAIT)
        fine = b"<html" in page and status in (0, 130)
        self.log.check(fine, f"{self.name}: attnlaw {command}  ({len(page)} bytes of its page, {status})")
        if not fine:
            self.log.say(output.read_text(encoding="utf-8"))

    def studies(self, source: Path, *names: str) -> None:
        """A small part of every study that ships, or of those that are named."""
        shown = " ".join(("a small part of", *(names or ("every study that ships",))))
        printed = self.run(["python", "-I", "../studies.py", str(source / "tests"), *names], shown=shown)
        self.log.say("       " + " | ".join(printed.splitlines()))

    def seconds(self, code: str) -> float:
        """CPU seconds of a new interpreter that runs some code, the least of three."""
        times = []
        for _ in range(3):
            before = children_seconds()
            subprocess.run(
                [str(self.bin / "python"), "-c", code],
                cwd=self.work,
                env=self.variables,
                check=True,
                capture_output=True,
            )
            times.append(children_seconds() - before)
        return min(times)

    def read_nothing_of_ours(self) -> None:
        log = self.folder / "forbidden"
        reads = sorted(set(log.read_text(encoding="utf-8").splitlines())) if log.exists() else []
        self.log.check(not reads, f"{self.name}: nothing of the repository was read {reads[:5] or ''}")


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size(folder: Path) -> float:
    """Megabytes below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
