"""The frozen commands: the words of 0.1.0, and those of 0.2.0 where they are others.

In the words, `{out}` is an empty directory of the run, `{minilm}`, `{rxnmapper}` and `{whisper}` are the real
checkpoints of tests/real_checkpoints.py, `{large}` is a made-up layer of width 4096; other paths start at the
root of the repository. `&&` runs one command line after the other, in the same directory.
"""

from __future__ import annotations

from dataclasses import dataclass

INPUTS = "tests/frozen/inputs"
TINY = "examples/tiny-decoder"


@dataclass(frozen=True)
class Command:
    """One frozen command; `since` holds the words of 0.2.0 where they differ from those of 0.1.0."""

    words: str
    since: str | None = None

    @property
    def verb(self) -> str:
        return self.words.split()[0]

    def lines(self, old_words: bool) -> list[str]:
        """The command lines to run, one after the other."""
        return (self.words if old_words or self.since is None else self.since).split(" && ")


def _study(name: str, report: bool = False) -> Command:
    words = f"study run tests/frozen/studies/{name}.toml --out {{out}} --json"
    return Command(words + (" && report {out} --figures svg" if report else ""))


COMMANDS = {
    # Weights on disk.
    "audit": Command(f"audit {TINY} --json"),
    "audit-table": Command(f"audit {TINY}"),
    "audit-out": Command(f"audit {TINY} --out {{out}} --figures svg --json"),
    "audit-several": Command(f"audit {TINY} {{rxnmapper}} --only qk,vo --layers 0:2 --out {{out}} --json"),
    "audit-selection": Command(f"audit {TINY} --only ffn,embedding,unembedding --layers 1:3 --json"),
    "audit-samples": Command(f"audit {TINY} --samples 100000 --json"),
    "audit-approximate": Command("audit {large} --approximate --out {out} --json"),
    "audit-adapter": Command(f"audit {INPUTS}/adapter --out {{out}} --json"),
    "audit-adapted": Command(f"audit {TINY} --adapter {INPUTS}/adapter --json"),
    "audit-map": Command(f"audit {TINY} --map {INPUTS}/decoder.toml --json"),
    "audit-missing": Command("audit no-such-model --json"),
    "audit-minilm": Command("audit {minilm} --json"),
    "audit-minilm-out": Command("audit {minilm} --layers 0:1 --only qk,vo --out {out} --json"),
    "audit-rxnmapper": Command("audit {rxnmapper} --json"),
    "audit-whisper": Command(
        "audit {whisper} --layers 0:1 --only qk,cross --out {out} --json",
        since="audit {whisper} --layers 0:1 --only qk,cross --precision double --out {out} --json",
    ),
    "report-audit": Command(f"audit {TINY} --layers 0:1 --out {{out}} && report {{out}} --figures svg"),
    "fit": Command(f"fit {TINY} --out {{out}} --json"),
    "fit-table": Command(f"fit {TINY} --only qk,vo --layers 0:2"),
    "fit-seed": Command(f"fit {TINY} --only ffn --seed 5 --map {INPUTS}/decoder.toml --json"),
    "fit-adapter": Command(f"fit {TINY} --adapter {INPUTS}/adapter --layers 0:1 --json"),
    "fit-rxnmapper": Command("fit {rxnmapper} --only qk --out {out} --json"),
    # A model and its input.
    "lens": Command(
        f"lens {TINY} --ids 1,2,3,5 --top 4 --out {{out}} --json",
        f"lens {TINY} --ids 1,2,3,5 --top 4 --out {{out}} --figures png --json",
    ),
    "lens-minilm": Command("lens {minilm} --ids 101,102 --top 2 --json"),
    # The limit of infinite width.
    "limit": Command("limit --heads 1,2 --width 16,64,inf --draws 500 --json"),
    "limit-table": Command("limit --heads 2 --width 16,inf --draws 500"),
    "limit-depth": Command(
        "limit --depth 3 --residual --normalise --mask causal --token 2 --width 16,inf --draws 300 --json"
    ),
    "limit-relu": Command(
        "limit --tokens 3 --activation relu --mask band:1 --width 16,inf --draws 500 --seed 3 --json"
    ),
    "limit-clip": Command("limit --tokens 3 --activation clip:1 --width 32,inf --draws 500 --json"),
    "limit-gram": Command(f"limit --gram {INPUTS}/gram.txt --width 16,inf --draws 500 --json"),
    "limit-embeddings": Command(f"limit --embeddings {TINY} --ids 5,6,7 --width 16,inf --draws 500 --json"),
    # What attention learns.
    "learn": Command("learn --json"),
    "learn-table": Command("learn --noise 0.5 --thresholds"),
    "learn-simulate": Command("learn --noise 0.2 --simulate 20 --seeds 3 --seed 1 --thresholds --json"),
    "learn-curve": Command(
        "learn --noise 0.5 --thresholds --curve alpha=0.05:1:6 --json",
        "learn --noise 0.5 --thresholds --alpha 0.05:1:6 --json",
    ),
    "learn-curve-simulate": Command(
        "learn --student direct --curve alpha=0.1:0.7:3 --noise 0.3 --simulate 16 --seeds 2 --json",
        "learn --student direct --alpha 0.1:0.7:3 --noise 0.3 --simulate 16 --seeds 2 --json",
    ),
    "learn-direct": Command("learn --student direct --tokens 2 --noise 0.1 --alpha 0.1 --thresholds --json"),
    "learn-bayes": Command("learn --student bayes --noise 0.1 --target-rank 0.3 --alpha 0.3 --json"),
    "learn-softmax": Command(
        "learn --output softmax --tokens 2 --beta 1.5 --alpha 0.3 --noise 0.1 --thresholds --json"
    ),
    "learn-softmax-bayes": Command("learn --output softmax --student bayes --tokens 3 --alpha 0.1 --json"),
    "learn-hardmax": Command("learn --output hardmax --student bayes --tokens 2 --alpha 0.2 --json"),
    "learn-exponent": Command(
        "learn --target-exponent 1.2 --target-dimension 10000 --alpha 0.001 --noise 0.5 --json"
    ),
    "learn-spike": Command("learn --target-spike 8 --alpha 0.4 --noise 0.5 --weight-decay 0.6 --json"),
    "learn-recovered": Command("learn --alpha 0.6 --weight-decay 0 --json"),
    # The shipped studies, reduced.
    "study-atlas": _study("atlas", report=True),
    "study-learn-curves": _study("learn-curves", report=True),
    "study-learn-phase-diagram": _study("learn-phase-diagram", report=True),
    "study-learn-scaling": _study("learn-scaling", report=True),
    "study-learn-spectrum": _study("learn-spectrum", report=True),
    "study-learn-tokens": _study("learn-tokens"),
    "study-limit-depth": _study("limit-depth", report=True),
    "study-limit-heads": _study("limit-heads"),
    "study-limit-low-rank": _study("limit-low-rank"),
    "study-limit-relu": _study("limit-relu"),
    "study-limit-scaling": _study("limit-scaling"),
    "study-limit-width": _study("limit-width", report=True),
}
