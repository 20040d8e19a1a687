"""Compare the command line with the record of version 0.2.0: `python tests/frozen/compare.py [NAME...]`.

Every value, text, page and figure of the record must be there, and nothing may be added. Floats must agree
within `LIMITS`, also those inside texts and pages: version 0.3 computes the same numbers in fewer operations.
`CHANGES` lists what else may differ, with its reason. If this machine has other libraries or kernels than the
one that recorded (`running.machine`), floats must agree within `TOLERANCE`. Hashes and packed arrays are not
compared, and of a PNG file only its size in pixels.
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frozen.commands import COMMANDS
from frozen.record import read_record
from frozen.running import ENVIRONMENT, Run, machine, run
from real_checkpoints import Unavailable

# Differences on purpose: command, path, reason. Both are patterns of `fnmatch`.
CHANGES: tuple[tuple[str, str, str], ...] = (
    ("*", "*version", "the version itself"),
    ("*audit*", "*settings/experts", "an option that 0.2.0 did not have"),
    ("*audit*", "tables/*/experts/*", "an option that 0.2.0 did not have"),
    ("audit-approximate", "*random_p_value*", "another statistic for large matrices; none crosses 0.01"),
    ("audit-approximate", "texts/report.html", "the page shows these p-values"),
    ("*", "*/route/*", "heads of float32 weights have Cholesky factors too"),
    ("*", "*/task_seconds*", "a time"),
    ("*", "*/task/*", "the key of a task contains the version and the name of its function"),
    ("*", "tables/*/case/*", "every table has the number of its row"),
    ("*", "*/unscaled*", "a new option: --unscaled reads float8 weights without scales"),
    ("*audit*", "*/codes", "a new key: the codes of quantised matrices"),
    ("study-atlas", "tables/rows.parquet/codes/*", "a new key: the codes of quantised matrices"),
    ("study-atlas", "tables/rows.parquet/experts/*", "an option that 0.2.0 did not have"),
    ("study-atlas", "texts/figures/*.caption.txt", "captions name the new options"),
    ("*", "documents/attnlaw.json/lines/*", "attnlaw.json names its files and their lines"),
    ("audit*", "tables/rows.parquet/*", "an audit has rows as every result"),
    ("audit*", "tables/atlas.parquet/*", "what summary.json says of the atlas is a table"),
    ("report-audit", "tables/rows.parquet/*", "an audit has rows as every result"),
    ("fit*", "tables/rows.parquet/*", "fits have rows as every result"),
    ("audit-several", "tables/curves.parquet/*", "curves in the order of models; sorted they agree"),
    ("check", "tables/rows.parquet/fail_on_setting/*", "a setting and a quantity of one name: two columns"),
    ("check", "tables/verdict_values.parquet/*", "what only the terminal showed is a table"),
    ("margins", "tables/kappa_kinds.parquet/*", "what only the terminal showed is a table"),
    ("margins", "tables/pairs.parquet/*", "what only the terminal showed is a table"),
    ("init", "tables/architecture.parquet/*", "what only the terminal showed is a table"),
    ("study-*", "documents/*attnlaw.json/*", "a study has the layout of every result"),
    ("study-*", "*attnlaw_version/*", "the version itself"),
    ("study-*", "texts/report.html", "the data of the page have no column error, and other numbers of cases"),
    ("dynamics", "texts/report.html", "the data of the page have other numbers of cases, and settings first"),
    ("study-atlas", "documents/summary.json/*", "a study has the layout of every result"),
    ("study-atlas", "tables/tables/atlas/*", "what summary.json says of the atlas is a table"),
    ("limit*", "json/*/settings/score", "the score function is a setting"),
    ("limit-table", "text", "the score function is a setting"),
    ("study-limit-*", "tables/rows.parquet/score/*", "the score function is a setting"),
    ("study-limit-*", "texts/figures/*.caption.txt", "captions name the score function"),
    ("study-limit-*", "texts/report.html", "captions name the score function"),
    ("audit-table", "text", "a sentence points to the scale measured on inputs"),
    ("audit-out", "texts/report.html", "a sentence points to the scale measured on inputs"),
    ("report-audit", "texts/report.html", "a sentence points to the scale measured on inputs"),
    ("*", "*/finding_rules*", "checks that cannot look at the chosen matrices do not count"),
    ("*audit*", "*/findings/rules", "checks that cannot look at the chosen matrices do not count"),
    ("lens*", "*/head_findings*", "a remark needs clearly more attention than uniform attention gives"),
    ("lens*", "tables/head_attention*", "attention is drawn for the heads with a remark"),
)
# Largest relative difference by path: (1,1) norms of heads are summed from float32 products, and what a text
# or a proxy shows of them follows. Errors of sizes as applied are themselves of the size of round-off.
LIMITS: tuple[tuple[str, float], ...] = (
    ("*norm_11*", 1e-8),
    ("*trauger_tewari*", 1e-8),
    ("text*", 1e-8),
    ("*applied_error*", 1e-2),
    ("*null_scale*", 1e-4),
    ("*edge*", 1e-4),
    ("*wasserstein*", 1e-2),
    ("*predicted_spectra/density*", 1e-6),  # near its end a density is 1e-5 of its maximum
    ("*", 1e-10),
)
# With other kernels trained students end elsewhere within the residual of their solver, 1e-6: their numbers
# then differ by 1e-6 of themselves. Ten times that.
TOLERANCE = 1e-5
# Values below this are residuals of solvers and rounding noise.
NOISE = 1e-6
SMALLEST = 1e-13  # of these on the machine that recorded
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
VERSION = re.compile(r"\b0\.[23]\.\d+(?:[.-]?(?:dev|rc)\d+)?\b")
ROUTE = re.compile(r'"(?:qr|cholesky)"')  # how a page's head was factorised: both are right
PACKED = re.compile(r"[A-Za-z0-9+/]{80,}=*")  # arrays inside a page, in base64
SHOWN = 12  # differences printed for a command

Values = dict[str, Any]


@dataclass
class Comparison:
    """How the values of one command compare with their record."""

    equal: int = 0
    different: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return not (self.different or self.missing or self.added)

    @property
    def counts(self) -> str:
        return (
            f"{self.equal:7} equal {len(self.different):5} different {len(self.missing):5} missing"
            f" {len(self.added):5} added {self.allowed.total():5} allowed"
        )


def flatten(given: Run) -> Values:
    """Return every value of a run by its path, such as `tables/matrices.parquet/share/17`."""
    parts = {
        "status": given.status,
        "json": given.json,
        "text": " ".join(given.text.split()),
        "tables": given.tables,
        "documents": given.documents,
        "texts": {
            name: _markup(text) if name.endswith(".html") else text for name, text in given.texts.items()
        },
        "images": given.images,
    }
    return {path: value for name, part in parts.items() for path, value in _leaves(part, name)}


def _markup(page: str) -> str:
    """Return a page without white space between its elements, with single spaces and one form of quotes."""
    quoted = page.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")
    return re.sub(r"> (?=<)", ">", " ".join(quoted.split()))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in items:
            yield from _leaves(inner, f"{path}/{key}")
    else:
        yield path, value


def compare(name: str, before: Values, after: Values, exact: bool = True) -> Comparison:
    """Compare the values of a run with their record; `exact` is False on another machine."""
    result = Comparison()
    for path in [*before, *(path for path in after if path not in before)]:
        old, new = before.get(path), after.get(path)
        if path in before and path in after and agree(path, old, new, exact):
            result.equal += 1
        elif reason := _reason(name, path):
            result.allowed[reason] += 1
        elif path not in after:
            result.missing.append(f"{path} = {_shorten(old)}")
        elif path not in before:
            result.added.append(f"{path} = {_shorten(new)}")
        else:
            result.different.append(f"{path}: {_difference(old, new)}")
    return result


def agree(path: str, old: Any, new: Any, exact: bool) -> bool:
    """Whether two values are the same; text may name another version of attnlaw.

    >>> agree("x", 0.1, 0.1, True), agree("x", True, 1, True)
    (True, False)
    >>> agree("x", 1.0, 1 + 1e-9, True), agree("x", 1.0, 1 + 1e-9, False), agree("x", 1.0, 1 + 1e-3, False)
    (False, True, False)
    >>> agree("norm_11", 1.0, 1 + 1e-9, True)
    True
    >>> agree("x", "E 0.25 of 3", "E 0.250000001 of 3", False), agree("x", "E 0.25", "F 0.25", False)
    (True, False)
    """
    if type(old) is not type(new):
        return False
    if isinstance(old, str):
        old, new = (ROUTE.sub("ROUTE", VERSION.sub("VERSION", text)) for text in (old, new))
    if repr(old) == repr(new):
        return True
    limit = TOLERANCE
    if exact:
        limit = next(limit for pattern, limit in LIMITS if fnmatch.fnmatchcase(path, pattern))
    noise = SMALLEST if exact else NOISE

    def close(first: float, second: float) -> bool:
        return math.isclose(first, second, rel_tol=limit, abs_tol=noise)

    if isinstance(old, float):
        return close(old, new)
    if path.startswith("images/"):
        return _pixels(old) == _pixels(new)
    if path.endswith("/sha256"):
        return True
    if isinstance(old, str):
        old, new = PACKED.sub("", old), PACKED.sub("", new)
        return NUMBER.split(old) == NUMBER.split(new) and all(
            map(close, map(float, NUMBER.findall(old)), map(float, NUMBER.findall(new)))
        )
    return False


def _pixels(image: str) -> bytes:
    return base64.b64decode(image)[16:24]  # width and height in the header of a PNG file


def _reason(command: str, path: str) -> str | None:
    for commands, paths, reason in CHANGES:
        if fnmatch.fnmatchcase(command, commands) and fnmatch.fnmatchcase(path, paths):
            return reason
    return None


def _shorten(value: Any) -> str:
    return repr(value)[:60]


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, str) and isinstance(new, str):
        old, new = VERSION.sub("VERSION", old), VERSION.sub("VERSION", new)
        start = next(
            (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
        )
        start = max(0, start - 20)
        return f"at character {start}: {old[start : start + 70]!r}, now {new[start : start + 70]!r}"
    text = f"{old!r}, now {new!r}"
    if isinstance(old, float) and isinstance(new, float) and old:
        text += f" (relative difference {abs(new - old) / abs(old):.1e})"
    return text


def main() -> int:
    """Compare the named commands, or all of them; return 1 if something differs without a reason."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMMANDS))
    parser.add_argument("--core", default=ENVIRONMENT["OPENBLAS_CORETYPE"], help="kernels of OpenBLAS to use")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in COMMANDS]:
        parser.error(f"unknown command {', '.join(unknown)}; choose from {', '.join(COMMANDS)}")
    record = read_record()
    here = machine() | {"core": given.core}
    exact = record["machine"] == here
    if not exact:
        print(f"recorded with {record['machine']}, now {here}: floats must agree to {TOLERANCE:g}")
    failed, reasons = [], Counter[str]()
    for name in given.names or COMMANDS:
        before = Run(**record["runs"][name])
        try:
            after = run(COMMANDS[name], ENVIRONMENT | {"OPENBLAS_CORETYPE": given.core})
        except Unavailable as error:
            print(f"{name:26} left out: {error}")
            continue
        result = compare(name, flatten(before), flatten(after), exact)
        print(f"{name:26} {result.counts}   CPU {before.cpu:.1f} -> {after.cpu:.1f} s", flush=True)
        for line in [*result.different[:SHOWN], *result.missing[:SHOWN], *result.added[:SHOWN]]:
            print(f"    {line}")
        failed += [] if result.passed else [name]
        reasons += result.allowed
    for reason, count in reasons.items():
        print(f"allowed {count}: {reason}")
    print(
        f"{len(failed)} commands differ: {', '.join(failed)}" if failed else "All commands agree with 0.2.0."
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
