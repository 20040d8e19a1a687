"""Pictures that attnlaw draws, with their commands and captions: docs/gallery/*.png and *.txt.

    python docs/scripts/gallery.py [NAME...]

Without names it draws every picture, in about ten minutes on one core. With names it draws those alone.
It downloads the models of the five-minute tour if the cache of the tests does not have them.
docs/hooks/pictures.py puts all pictures into docs/start/gallery.md. Needs the `test` extra.
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
PICTURES = ROOT / "docs" / "gallery"
PIXELS_PER_INCH = 130
COLOURS = 256  # of a picture: a third of its bytes
MODEL = "examples/tiny-decoder"
ATTNLAW = Path(sys.executable).with_name("attnlaw")
TEXT = "--text 'the cat sat on the mat and the cat slept'"


@dataclass(frozen=True)
class Picture:
    """The figure `figure` of what `command --out DIR` writes, and the page that explains it."""

    name: str
    command: str
    figure: str
    page: str
    paper: str = ""  # its number on arXiv

    @property
    def shown(self) -> str:
        return f"attnlaw {self.command}"


VERBS = (
    Picture("audit-heads", f"audit {MODEL}", "heads", "../commands/audit.md"),
    Picture("diff", "diff bert_pretrained bert_ft_10k_25s", "heads_size", "tour.md"),
    Picture(
        "learn",
        "learn --alpha 0.05:1:20 --noise 0.5 --target-rank 0.3 --student factorized,bayes,direct",
        "learning",
        "../commands/learn.md",
    ),
    Picture("fit", f"fit {MODEL}", "laws", "../commands/fit.md"),
    Picture("audit", f"audit {MODEL}", "contributions", "../theory/bounds.md"),
    Picture("lens", f"lens {MODEL} {TEXT}", "lens_map", "../commands/lens.md"),
    Picture("lens-heads", f"lens {MODEL} {TEXT} --only heads", "head_betas", "../commands/lens.md"),
    Picture(
        "margins",
        f"margins {MODEL} --file examples/sentences.txt",
        "margins_distances",
        "../commands/margins.md",
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
    Picture("limit", "limit --tokens 4 --heads 2 --width 16,64,256,inf", "densities", "../commands/limit.md"),
    Picture(
        "attention",
        "attention --tokens 512 --heads 12 --head-size 64 --beta 0.5,1",
        "spectra",
        "../commands/attention.md",
    ),
    Picture("init", "init gpt2 --tokens 8 --width own,inf", "init_layers", "../commands/init.md"),
)
# The figures of papers on the page, in their quick versions. The value is the figure that is shown; if it is
# empty, the first that the study draws.
PAPER_FIGURES = {
    "bounds-growth": "",
    "limit-heads": "gaussian",
    "learn-curves": "",
    "learn-phase-diagram": "phases",
    "dynamics-spectra": "spectra",
    "early-stopping": "stopping",
    "complete-connectivity": "",
    "regression-ensemble": "",
}


def studies() -> list[Picture]:
    """Return a picture for each figure of a paper that the page shows."""
    return [
        Picture(
            figure.study,
            f"reproduce {figure.study} --quick",
            PAPER_FIGURES[figure.study],
            "../how-to/reproduce-a-figure.md",
            paper.arxiv,
        )
        for paper in PAPERS
        for figure in paper.figures
        if figure.study in PAPER_FIGURES
    ]


def draw(picture: Picture) -> None:
    """Run the command and keep its figure with the first line of its caption."""
    with tempfile.TemporaryDirectory() as scratch:
        models = Path(scratch) / "models"
        place_models(models)
        words = [*shlex.split(picture.command), "--out", f"{scratch}/results", "--figures", "svg"]
        subprocess.run([ATTNLAW, *words], cwd=models, check=True, capture_output=True)
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


def place_models(folder: Path) -> None:
    """Put the examples and the models of the tour into a folder, under the names that commands give them."""
    sys.path.append(str(ROOT / "tests"))
    from docs.sessions import blocks, link_models

    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks((ROOT / "docs" / "start" / "tour.md").read_text(encoding="utf-8")):
        link_models(block, folder)


def entry(picture: Picture) -> str:
    """Return a picture on the page: its title, the drawing, how to read it, and the command."""
    title, _, caption = (PICTURES / f"{picture.name}.txt").read_text(encoding="utf-8").strip().partition(". ")
    paper = f"From arXiv [{picture.paper}](https://arxiv.org/abs/{picture.paper}). " if picture.paper else ""
    # A PNG states its width in its first bytes. It has more pixels than the page shows, for dense screens.
    width = int.from_bytes((PICTURES / f"{picture.name}.png").read_bytes()[16:20], "big") * 3 // 4
    return (
        f"### {title}\n\n![{title}](../gallery/{picture.name}.png){{ width={width} loading=lazy }}\n\n"
        f"{caption} {paper}[More]({picture.page})\n\n`{picture.shown}`\n"
    )


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    every = {picture.name: picture for picture in (*VERBS, *studies())}
    for name in sys.argv[1:] or every:
        draw(every[name])


if __name__ == "__main__":
    main()
