"""The papers whose figures attnlaw reproduces, the study for each figure, and the published numbers.

A figure has the name of its study. `published/STUDY.csv` has one line for each published number, with the
columns `quantity`, `value`, `error` (one standard error or standard deviation; empty if unknown), `kind` and
`source`. Its other columns are settings: they select the rows of the study to which the number belongs, and
an empty cell selects every value. `published/README.md` names the sources.

| kind | the number comes from |
|---|---|
| `published` | the paper, or files that its authors published |
| `reference` | an independent program that shares no code with attnlaw, not from the paper |
| `beside` | the paper, but for another algorithm or size: it is shown and not tested |
| `disputed` | the paper or its files, where another program contradicts it: it is shown and not tested |
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from attnlaw.core.errors import InputError

FOLDER = Path(__file__).parent / "published"
NUMBER_COLUMNS = ("quantity", "value", "error", "kind", "source")
KINDS = ("published", "reference", "beside", "disputed")
UNTESTED = ("beside", "disputed")
OTHER_SETUP = "other setup"  # how screens call the kind `beside`
OTHER_SETUP_MEANS = (
    f"{OTHER_SETUP}: this number was published for another algorithm or size, so attnlaw shows it but "
    "does not test it."
)
# Follows "compared with" on screens.
ABSTRACT = "nothing: only the abstract was available, so attnlaw's authors derived the equations"


HARDMAX = (
    "The state evolution that its authors saved (SE_hardmax_rho=0.5.csv) has an error E of 0.617 at alpha "
    "0.3122. attnlaw has 0.360, and an independent message-passing program at d = 80 has 0.367(6). Their "
    "code uses a bivariate density instead of the derivative of the distribution function. With that "
    "density the equations give 0.617."
)


@dataclass(frozen=True)
class PaperFigure:
    """A figure or table of a paper, and the name of the study that reproduces it."""

    study: str
    about: str
    needs: str = ""  # what must be installed besides attnlaw
    large: bool = False  # takes an hour or needs a network, so a quick run skips it
    note: str = ""  # what to know about its numbers


@dataclass(frozen=True)
class Paper:
    """A paper and its figures."""

    arxiv: str  # its number on arXiv
    title: str
    figures: tuple[PaperFigure, ...]
    compared: str  # what is compared with what: published numbers, an independent program, or nothing and why
    command: str = ""  # the command that shows the paper's subject, if no figure is repeated


PAPERS = (
    Paper(
        "2605.07297",
        "Spectrum-adaptive bounds",
        (
            PaperFigure("bounds-growth", "growth with depth and width over 18 trained encoders"),
            PaperFigure(
                "bounds-reference",
                "proxies of a trained BERT, reference values",
                needs="pip install --no-deps rxnfp==0.1.0 (its weights), and the extra torch",
            ),
            PaperFigure(
                "bounds-miniatures",
                "proxies of the 24 BERT miniatures by depth and width",
                needs="the extras hub and torch, and an internet connection",
                large=True,
            ),
        ),
        "reference: a separate least-squares fit of the growth, and an independent program's values of a "
        "trained BERT. The paper shows its numbers only in figures",
    ),
    Paper(
        "2506.00846",
        "Infinite-width limit of an attention layer",
        (
            PaperFigure("limit-width", "distance to the infinite-width limit at each width"),
            PaperFigure("limit-heads", "from one head to many: the output becomes Gaussian"),
            PaperFigure("limit-scaling", "scalings 1/sqrt(n) and 1/n"),
            PaperFigure("limit-low-rank", "low-rank heads"),
            PaperFigure("limit-relu", "ReLU tokens"),
        ),
        "reference: values from an independent program, including its kernel estimate. The paper only shows "
        "curves",
    ),
    Paper(
        "2610.10033",
        "Spectrum of multi-head attention",
        (
            PaperFigure("limit-spectrum", "softmax attention and its Gaussian equivalent (table D.2)"),
            PaperFigure("limit-spectrum-large", "the two largest rows of table D.2", large=True),
            PaperFigure("limit-readout", "error of linear readouts with narrow and wide keys (D.1)"),
            PaperFigure("limit-arrival", "times at which gradient flow reaches a given loss"),
        ),
        "published: table D.2, the crossing point of (D.1), and arrival times",
    ),
    Paper(
        "2509.24914",
        "Attention with one head in high dimensions",
        (
            PaperFigure("learn-curves", "error for each number of samples, three students"),
            PaperFigure("learn-spectrum", "spectrum of the trained matrix"),
            PaperFigure("learn-phase-diagram", "where attention learns its target"),
            PaperFigure("learn-scaling", "exponents for power-law targets"),
        ),
        "reference: an independent program's values of the same equations. The paper only shows curves",
    ),
    Paper(
        "2506.01582",
        "Bayes-optimal learning of attention",
        (
            PaperFigure(
                "learn-tokens", "error (E) for each number of samples, with a softmax over 2, 3 and 4 tokens"
            ),
            PaperFigure(
                "learn-hardmax",
                "error (E) for each number of samples, with a hardmax over 2 tokens",
                note=HARDMAX,
            ),
        ),
        "published: state evolution and AMP in the authors' files. Its value for hardmax is disputed: an "
        "independent program (reference) contradicts it",
    ),
    Paper(
        "2609.03858",
        "Learning dynamics of attention",
        (
            PaperFigure("dynamics-flow", "gradient flow with four kinds of output"),
            PaperFigure("dynamics-students", "alignment and loss over time, three students"),
            PaperFigure("dynamics-spectra", "the spectrum during training"),
            PaperFigure("dynamics-cost", "error after one pass of SGD, and the best possible error"),
            PaperFigure("dynamics-modes", "the order in which directions are learned"),
            PaperFigure(
                "dynamics-training",
                "heads of a real model compared with the theory",
                needs="the extra torch",
                large=True,
            ),
        ),
        "reference: an independent program's values. The paper's figures do not state the scales of target "
        "and start",
    ),
    Paper(
        "2108.11489",
        "Interpolation by two linear layers",
        (PaperFigure("regression-scale", "risk at each initialisation scale"),),
        ABSTRACT,
    ),
    Paper(
        "2406.03171",
        "Importance weights under covariate shift",
        (PaperFigure("regression-shift", "importance weights and risk for each ridge"),),
        ABSTRACT,
    ),
    Paper(
        "2007.08322",
        "Early stopping of small factors",
        (PaperFigure("early-stopping", "risk at each stopping threshold"),),
        ABSTRACT,
    ),
    Paper(
        "2405.13721",
        "Matrix completion",
        (
            PaperFigure(
                "complete-connectivity",
                "learned value of a missing entry as a function of the initialisation scale",
            ),
        ),
        ABSTRACT,
    ),
    Paper(
        "2201.13383",
        "Ensembles of learners",
        (PaperFigure("regression-ensemble", "error of 1, 4 and infinitely many averaged learners"),),
        ABSTRACT,
    ),
    Paper(
        "2510.06685",
        "Spectrum of one attention matrix",
        (),
        "reference: random matrices. The law comes from arXiv 2610.10033, for one head",
        command="attnlaw attention --heads 1",
    ),
    Paper(
        "2506.03470",
        "High-temperature Marchenko-Pastur law",
        (),
        "reference: draws of the random matrices that the law describes",
        command="attnlaw fit",
    ),
    Paper(
        "2601.17958",
        "TensorLens",
        (),
        "reference: the output of the model itself, which the map must reproduce",
        command="attnlaw lens",
    ),
    Paper("2306.13239", "Flatness and the nuclear norm", (), ABSTRACT, command="attnlaw audit"),
    Paper("2405.14494", "Entrywise errors of low rank", (), ABSTRACT, command="attnlaw lens --entrywise"),
    Paper("2602.18851", "Size of attention logits", (), ABSTRACT, command="attnlaw audit"),
    Paper(
        "2304.02911", "Heavy-tailed penalties", (), ABSTRACT, command="attnlaw.training.penalties in Python"
    ),
)


def find_figures(name: str) -> list[tuple[Paper, PaperFigure]]:
    """Return all figures of the paper with this arXiv number, or only the figure with this name.

    Raise an `InputError` if the paper or the figure does not exist.

    >>> [figure.study for _, figure in find_figures("arXiv:2506.01582v2")]
    ['learn-tokens', 'learn-hardmax']
    """
    name = re.sub(r"^arxiv:\s*|(?<=\d)v\d+$", "", name, flags=re.IGNORECASE)  # as citations write it
    every = [(paper, figure) for paper in PAPERS for figure in paper.figures]
    pairs = [pair for pair in every if name in (pair[0].arxiv, pair[1].study)]
    for paper in PAPERS:
        if paper.arxiv == name and not paper.figures:
            raise InputError(
                f"{name}: attnlaw does not repeat a figure of this paper; {paper.command} "
                "shows what the paper is about"
            )
    if not pairs:
        raise InputError(
            f"{name}: there is no such paper or figure; to see all of them, type attnlaw reproduce list"
        )
    return pairs


def published_lines(study: str) -> list[dict[str, str]]:
    """Return the lines of the file published/STUDY.csv. They are empty if there is no such file."""
    file = FOLDER / f"{study}.csv"
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
