"""A picture for every verb and study, with its command: docs/gallery/*.png and docs/start/gallery.md.

    python docs/scripts/gallery.py [NAME...]

Without names every picture is drawn anew, in about a quarter of an hour on one core; with names those alone.
The page is written from all of them. Needs the `test` extra.
"""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from attnlaw.render.charts import engine
from attnlaw.reproduce.papers import PAPERS

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURES = ROOT / "docs" / "start" / "gallery.md", ROOT / "docs" / "gallery"
PIXELS_PER_INCH = 130
COLOURS = 256  # of a picture: a third of its bytes
MODEL = "examples/tiny-decoder"
TEXT = "--text 'the cat sat on the mat and the cat slept'"


@dataclass(frozen=True)
class Picture:
    """The figure `figure` of what `command --out DIR` writes, and the page that tells of it."""

    name: str
    command: str
    figure: str
    page: str
    about: str = ""

    @property
    def shown(self) -> str:
        return f"attnlaw {self.command} --out DIR --figures png"


VERBS = (
    Picture("audit", f"audit {MODEL}", "contributions", "../commands/audit.md"),
    Picture("audit-heads", f"audit {MODEL}", "heads", "../commands/audit.md"),
    Picture("audit-balance", f"audit {MODEL}", "balance", "../theory/implicit-bias.md"),
    Picture("fit", f"fit {MODEL}", "laws", "../commands/fit.md"),
    Picture("lens", f"lens {MODEL} {TEXT}", "lens_map", "../commands/lens.md"),
    Picture("lens-heads", f"lens {MODEL} {TEXT} --only heads", "head_betas", "../commands/lens.md"),
    Picture(
        "lens-entrywise",
        f"lens {MODEL} {TEXT} --only entrywise --entrywise 1,4,16",
        "entrywise",
        "../commands/lens.md",
    ),
    Picture(
        "margins",
        f"margins {MODEL} --file examples/sentences.txt --kappa",
        "margins_distances",
        "../commands/margins.md",
    ),
    Picture(
        "margins-kappa",
        f"margins {MODEL} --file examples/sentences.txt --kappa",
        "margins_kappa",
        "../commands/margins.md",
    ),
    Picture("limit", "limit --tokens 4 --heads 2 --width 16,64,256,inf", "densities", "../commands/limit.md"),
    Picture(
        "attention",
        "attention --tokens 512 --heads 12 --head-size 64 --beta 0.5,1",
        "spectra",
        "../commands/attention.md",
    ),
    Picture("init", "init gpt2 --tokens 8 --width own,inf", "init_layers", "../commands/init.md"),
    Picture(
        "learn",
        "learn --alpha 0.05:1:20 --noise 0.5 --target-rank 0.3 --student factorized,bayes,direct",
        "learning",
        "../commands/learn.md",
    ),
    Picture(
        "learn-one",
        "learn --alpha 0.3 --noise 0.5 --weight-decay 0.6 --target-spike 6 --spectrum --simulate 40",
        "spectrum",
        "../commands/learn.md",
    ),
    Picture(
        "dynamics",
        "dynamics --times 0.01:0.5:8 --learning-rate 0.05,0.1 --noise 0.5 --simulate 24",
        "learning",
        "../commands/dynamics.md",
    ),
)
# Figures of papers, in their quick versions: the first figure of each, but where another is the paper's.
CHOSEN = {
    "learn-phase-diagram": "phases",
    "learn-scaling": "scaling",
    "learn-spectrum": "spectrum",
    "limit-heads": "gaussian",
    "limit-scaling": "kl_to_limit",
    "dynamics-spectra": "spectra",
    "early-stopping": "stopping",
}
# Ours, without a paper: whole studies.
OURS = {
    "learn-error": "../commands/learn.md",
    "learn-untied": "../commands/learn.md",
    "learn-width": "../commands/learn.md",
    "limit-depth": "../commands/limit.md",
    "init-depth": "../commands/init.md",
    "init-width": "../commands/init.md",
}


def studies() -> list[Picture]:
    """One picture for each figure of a paper that needs nothing else, then one for each study of ours."""
    papers = [
        Picture(
            figure.study,
            f"reproduce {figure.study} --quick",
            CHOSEN.get(figure.study, ""),
            "../how-to/reproduce-a-figure.md",
            f"{paper.title} (arXiv {paper.arxiv}): {figure.about}.",
        )
        for paper in PAPERS
        for figure in paper.figures
        if not figure.needs and not figure.large
    ]
    return [*papers, *(Picture(name, f"study run {name}", "", page) for name, page in OURS.items())]


def draw(picture: Picture) -> None:
    """Run the command and keep its figure with the first line of its caption."""
    with tempfile.TemporaryDirectory() as scratch:
        out = ["--out", scratch]
        attnlaw(*shlex.split(picture.command), *out, "--figures", "svg")
        drawn = sorted(Path(scratch).rglob("figures/*.svg"), key=lambda path: path.stat().st_mtime)
        named = [path for path in drawn if path.stem == picture.figure]
        (source, *_) = named or drawn
        png = engine.vl_convert.svg_to_png(source.read_text(encoding="utf-8"), ppi=PIXELS_PER_INCH)
        caption = source.with_name(f"{source.stem}.caption.txt").read_text(encoding="utf-8")
        (PICTURES / f"{picture.name}.png").write_bytes(lean(png))
        (PICTURES / f"{picture.name}.txt").write_text(caption.splitlines()[0] + "\n", encoding="utf-8")
    print("drew", picture.name, flush=True)


def lean(png: bytes) -> bytes:
    """The picture with few colours."""
    from PIL import Image

    out = io.BytesIO()
    # Of thin lines the usual method takes blue and green together.
    few = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


def attnlaw(*words: str) -> None:
    program = Path(sys.executable).with_name("attnlaw")
    subprocess.run([program, *words], cwd=ROOT, check=True, capture_output=True)


def entry(picture: Picture) -> str:
    """A picture on the page: what it shows, and how to draw it."""
    caption = (PICTURES / f"{picture.name}.txt").read_text(encoding="utf-8").strip()
    text = f"{picture.about} {caption}" if picture.about else caption
    block = f"```console\n$ {picture.shown}\n```"
    # The pixels across stand in the head of a PNG; some more than are shown, for dense screens.
    width = int.from_bytes((PICTURES / f"{picture.name}.png").read_bytes()[16:20], "big") * 3 // 4
    alternative = text.partition(". ")[0].rstrip(".").replace("]", "").replace("[", "")
    image = f"![{alternative}](../gallery/{picture.name}.png){{ width={width} loading=lazy }}"
    return (
        f"### {picture.name}\n\n{image}"
        f"\n\n{text} "
        f"[More]({picture.page})\n\n<!-- no-run: docs/scripts/gallery.py runs it -->\n{block}\n"
    )


HEAD = """# Gallery

What attnlaw draws: pictures of verbs and studies, each with the command that drew it. Studies of papers are
the quick versions, with fewer draws and points; `python docs/scripts/gallery.py` draws all of them anew. Not
here: studies that need a network or an hour (`attnlaw study list` names all), [diff](../commands/diff.md) and
[check](../commands/check.md), which need two checkpoints and rules of yours, and
[monitored training runs](../how-to/watch-training.md).
"""


def page() -> str:
    """The page of all pictures."""
    parts = [HEAD]
    for title, pictures in (("Drawn by verbs", VERBS), ("Drawn by studies", studies())):
        parts += [f"## {title}\n", *map(entry, pictures)]
    return "\n".join(parts)


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    every = {picture.name: picture for picture in (*VERBS, *studies())}
    for name in sys.argv[1:] or every:
        draw(every[name])
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
