"""The frozen commands: command lines of version 0.2.0 whose results must not change.

A command line may contain placeholders:

| placeholder | path |
|---|---|
| `{out}` | an empty directory for this run |
| `{minilm}`, `{rxnmapper}`, `{whisper}` | real checkpoints of `tests/real_checkpoints.py` |
| `{large}` | a LLaMA layer of width 2048 with random entries |
| `{tuned}` | the tiny decoder after a low-rank update of one matrix and a dense one of another |

Other paths are relative to the root of the repository. `&&` runs one command after the other, in the same
directory.
"""

from __future__ import annotations

INPUTS = "tests/frozen/inputs"
TINY = "examples/tiny-decoder"
SENTENCES = "examples/sentences.txt"


def _study(name: str, report: bool = False) -> str:
    words = f"study run tests/frozen/studies/{name}.toml --out {{out}} --json"
    return words + (" && report {out} --figures svg" if report else "")


COMMANDS = {
    # Weights on disk.
    "audit": f"audit {TINY} --json",
    "audit-table": f"audit {TINY}",
    "audit-out": f"audit {TINY} --out {{out}} --figures svg --json",
    "audit-several": f"audit {TINY} {{rxnmapper}} --only qk,vo --layers 0:2 --out {{out}} --json",
    "audit-selection": f"audit {TINY} --only ffn,embedding,unembedding --layers 1:3 --json",
    "audit-samples": f"audit {TINY} --samples 100000 --json",
    "audit-approximate": "audit {large} --approximate --out {out} --json",
    "audit-adapter": f"audit {INPUTS}/adapter --out {{out}} --json",
    "audit-adapted": f"audit {TINY} --adapter {INPUTS}/adapter --json",
    "audit-map": f"audit {TINY} --map {INPUTS}/decoder.toml --json",
    "audit-missing": "audit no-such-model --json",
    "audit-minilm": "audit {minilm} --json",
    "audit-minilm-out": "audit {minilm} --layers 0:1 --only qk,vo --out {out} --json",
    "audit-rxnmapper": "audit {rxnmapper} --json",
    "audit-whisper": "audit {whisper} --layers 0:1 --only qk,cross --precision double --out {out} --json",
    "report-audit": f"audit {TINY} --layers 0:1 --out {{out}} && report {{out}} --figures svg",
    "fit": f"fit {TINY} --out {{out}} --json",
    "fit-table": f"fit {TINY} --only qk,vo --layers 0:2",
    "fit-seed": f"fit {TINY} --only ffn --seed 5 --map {INPUTS}/decoder.toml --json",
    "fit-adapter": f"fit {TINY} --adapter {INPUTS}/adapter --layers 0:1 --json",
    "fit-rxnmapper": "fit {rxnmapper} --only qk --out {out} --json",
    "diff": f"diff {TINY} {{tuned}} --out {{out}} --figures svg --json",
    "diff-table": f"diff {TINY} {{tuned}}",
    "diff-missing": f"diff {TINY} no-such-model --json",
    "check": f"check {{tuned}} --rules {INPUTS}/gate.toml --out {{out}} --junit {{out}}/gate.xml --sarif {{out}}/gate.sarif --json",
    "check-table": f"check {{tuned}} --rules {INPUTS}/gate.toml",
    # A model and its input.
    "lens": f"lens {TINY} --ids 1,2,3,5 --top 4 --out {{out}} --figures png --json",
    "lens-minilm": "lens {minilm} --ids 101,102 --top 2 --json",
    "lens-heads": f"lens {TINY} --ids 1,2,3,5,8,13 --only heads --out {{out}} --figures svg --json",
    "lens-table": f"lens {TINY} --ids 1,2,3,5 --only operator",
    "margins": f"margins {TINY} {{tuned}} --file {SENTENCES} --kappa --out {{out}} --figures svg --json",
    "margins-table": f"margins {TINY} --file {SENTENCES}",
    # A model before training.
    "init": f"init {TINY} --tokens 8 --draws 8 --width own,inf --out {{out}} --figures svg --json",
    "init-table": "init gpt2 --tokens 4 --draws 2 --units 64",
    # The limit of infinite width.
    "limit": "limit --heads 1,2 --width 16,64,inf --draws 500 --json",
    "limit-table": "limit --heads 2 --width 16,inf --draws 500",
    "limit-depth": "limit --depth 3 --residual --normalise --mask causal --token 2 --width 16,inf --draws 300 --json",
    "limit-relu": "limit --tokens 3 --activation relu --mask band:1 --width 16,inf --draws 500 --seed 3 --json",
    "limit-clip": "limit --tokens 3 --activation clip:1 --width 32,inf --draws 500 --json",
    "limit-gram": f"limit --gram {INPUTS}/gram.txt --width 16,inf --draws 500 --json",
    "limit-embeddings": f"limit --embeddings {TINY} --ids 5,6,7 --width 16,inf --draws 500 --json",
    # What attention learns.
    "learn": "learn --json",
    "learn-table": "learn --noise 0.5 --thresholds",
    "learn-simulate": "learn --noise 0.2 --simulate 20 --seeds 3 --seed 1 --thresholds --json",
    "learn-curve": "learn --noise 0.5 --thresholds --alpha 0.05:1:6 --json",
    "learn-curve-simulate": "learn --student direct --alpha 0.1:0.7:3 --noise 0.3 --simulate 16 --seeds 2 --json",
    "learn-direct": "learn --student direct --tokens 2 --noise 0.1 --alpha 0.1 --thresholds --json",
    "learn-bayes": "learn --student bayes --noise 0.1 --target-rank 0.3 --alpha 0.3 --json",
    "learn-softmax": "learn --output softmax --tokens 2 --beta 1.5 --alpha 0.3 --noise 0.1 --thresholds --json",
    "learn-softmax-bayes": "learn --output softmax --student bayes --tokens 3 --alpha 0.1 --json",
    "learn-hardmax": "learn --output hardmax --student bayes --tokens 2 --alpha 0.2 --json",
    "learn-exponent": "learn --target-exponent 1.2 --target-dimension 10000 --alpha 0.001 --noise 0.5 --json",
    "learn-spike": "learn --target-spike 8 --alpha 0.4 --noise 0.5 --weight-decay 0.6 --json",
    "learn-recovered": "learn --alpha 0.6 --weight-decay 0 --json",
    # How attention learns.
    "dynamics": (
        "dynamics --times 0.01:0.5:4 --learning-rate 0.05,0.1 --noise 0.5 --simulate 16 --seeds 2 --out {out} "
        "--figures svg --json"
    ),
    "dynamics-untied": "dynamics --attention untied --tokens 2 --times 0.02:0.4:3 --json",
    "dynamics-table": "dynamics --times 0.002:0.5:6",
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
