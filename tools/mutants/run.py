"""Break the code on purpose and see whether the tests notice: a sample of mutants for each package.

    python tools/mutants/run.py [PACKAGE...] [--count 200] [--seed 0]      (default: all of PACKAGES)

cosmic-ray makes the mutants (of operators, numbers, comparisons, branches) in a copy of the project; each
runs the tests and doctests of its own package, but for the slowest, the quickest first, until the first
failure; as many packages at once as there are cores. Prints the survivors and the score of each package, and
writes both to tools/mutants/results.json. Mutants of type annotations are left out: nothing runs them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Each package, and its slowest tests, which are left out: what only they would notice counts as a survivor.
PACKAGES = {
    "theory/bounds": "eighty_layers or whisper or minilm",
    "spectra": "trained_model",
    "theory/limit": "inverse_square or kl_to_the_limit or spread_of_repeated",
    "theory/learn": "agrees_with_theory or bins_do_not_matter or two_starts or small_beta",
    "checkpoints/quantization": "test_libraries or all_damages",
    "analysis/diff": "test_confusion or published or test_command or test_families",
    "analysis/findings": "smollm2 or mpnet",
    "core": "loaded_result",
}
CONFIG = """[cosmic-ray]
module-path = "src/attnlaw/{package}"
timeout = {timeout}
excluded-modules = []
test-command = "{command}"
[cosmic-ray.distributor]
name = "local"
"""


def annotation_lines(path: Path) -> set[tuple[int, int, int, int]]:
    """Places (first line, column, last line, column) of all type annotations in a file."""
    places = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("annotation", "returns"):
            note = getattr(node, field, None)
            if isinstance(note, ast.AST):
                places.add((note.lineno, note.col_offset, note.end_lineno, note.end_col_offset))
    return places


def is_annotation(copy: Path, file: str, line: int, column: int, known: dict[str, set]) -> bool:
    places = known.setdefault(file, annotation_lines(copy / file))
    return any((a, b) <= (line, column) < (c, d) for a, b, c, d in places)


def sample(copy: Path, session: Path, count: int, seed: int) -> int:
    """Keep a random sample of the mutants that are not in annotations; drop the others from the session."""
    known: dict[str, set] = {}
    with sqlite3.connect(session) as store:
        rows = store.execute(
            "select job_id, module_path, start_pos_row, start_pos_col from mutation_specs order by job_id"
        ).fetchall()
        places = {job: (file, line, column) for job, file, line, column in rows}
        # Job names are random, so that the sample is drawn over places in the code.
        real = sorted(job for job, place in places.items() if not is_annotation(copy, *place, known))
        real.sort(key=lambda job: (*places[job], job))
        chosen = set(random.Random(seed).sample(real, min(count, len(real))))
        dropped = [(job,) for job in places if job not in chosen]
        store.executemany("delete from mutation_specs where job_id = ?", dropped)
        store.executemany("delete from work_items where job_id = ?", dropped)
    return len(chosen)


def run(package: str, count: int, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="attnlaw-mutants-") as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy / 'tools' / 'mutants'}",
            "DURATIONS": f"{folder}/durations.json",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

        def call(*command: str, capture: bool = False) -> str:
            done = subprocess.run(
                command, cwd=copy, env=environment, check=True, text=True, capture_output=capture
            )
            return done.stdout or ""

        tests = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "quick_first"]
        tests += ["--doctest-modules", "-m", "not long"]
        tests += [f"tests/{package}", f"src/attnlaw/{package}", "-k", f"not ({PACKAGES[package]})"]
        started = time.perf_counter()
        call(*tests, capture=True)
        whole = time.perf_counter() - started
        tool = str(Path(sys.executable).with_name("cosmic-ray"))
        config, session = Path(folder) / "config.toml", Path(folder) / "session.sqlite"
        command = shlex.join(tests)
        config.write_text(CONFIG.format(package=package, timeout=2 * whole + 10, command=command))
        call(tool, "init", str(config), str(session))
        kept = sample(copy, session, count, seed)
        print(f"{package}: {kept} mutants, tests take {whole:.0f} s", flush=True)
        started = time.perf_counter()
        call(tool, "exec", str(config), str(session))
        with sqlite3.connect(session) as store:
            rows = store.execute(
                "select module_path, start_pos_row, operator_name, test_outcome, output, diff "
                "from mutation_specs join work_results using (job_id) order by module_path, start_pos_row"
            ).fetchall()
    survivors = [
        {"file": file, "line": line, "operator": operator, "diff": diff}
        for file, line, operator, outcome, _, diff in rows
        if outcome == "SURVIVED"
    ]
    return {
        "package": package,
        "mutants": len(rows),
        "killed": len(rows) - len(survivors),
        "timed_out": sum(output == "timeout" for *_, output, _ in rows),
        "minutes": round((time.perf_counter() - started) / 60, 1),
        "survivors": survivors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(PACKAGES)}")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    packages = arguments.packages or list(PACKAGES)
    if strange := set(packages) - PACKAGES.keys():
        parser.error(f"no package is called {', '.join(sorted(strange))}; choose from {', '.join(PACKAGES)}")
    target = ROOT / "tools" / "mutants" / "results.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda package: run(package, arguments.count, arguments.seed), packages)
        for package, result in zip(packages, done, strict=True):
            results[package] = result
            target.write_text(json.dumps(results, indent=1) + "\n")
            for survivor in result["survivors"]:
                changed = [
                    line
                    for line in survivor["diff"].splitlines()
                    if line[:1] in "+-" and line[:3] not in ("+++", "---")
                ]
                print(f"survived {survivor['file']}:{survivor['line']}", *changed, sep="\n    ")
    for package, result in results.items():
        killed, mutants, late, minutes = (
            result[key] for key in ("killed", "mutants", "timed_out", "minutes")
        )
        share = f"{killed / max(mutants, 1):.0%}"
        print(f"{package:8} {killed} of {mutants} killed ({share}, {late} by time) in {minutes} min")


if __name__ == "__main__":
    main()
