"""Papers, their figures, and the shipped study that repeats each: the table behind `attnlaw reproduce`.

A figure goes by the name of its study. Numbers that stand beside ours are `published/STUDY.csv`; where a
paper has none that can be compared, `numbers` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.errors import InputError

ABSTRACT = "only its abstract was at hand; no number of its figures can be compared"


@dataclass(frozen=True)
class PaperFigure:
    """A figure or a table of a paper, and the study of this name that repeats it."""

    study: str
    about: str
    needs: str = ""  # what must be there beside attnlaw
    large: bool = False  # takes an hour or a network: left out of a quick run


@dataclass(frozen=True)
class Paper:
    """A paper by its number on arXiv; `numbers`: what of its numbers can be compared."""

    arxiv: str
    title: str
    figures: tuple[PaperFigure, ...]
    numbers: str = ""


PAPERS = (
    Paper(
        "2605.07297",
        "Spectrum-adaptive bounds",
        (
            PaperFigure(
                "bounds-reference",
                "proxies of a trained BERT, reference values",
                needs="pip install --no-deps rxnfp==0.1.0 (its weights), and the extra torch",
            ),
            PaperFigure(
                "bounds-miniatures",
                "proxies of the 24 BERT miniatures by depth and width",
                needs="the extras hub and torch, and a network",
                large=True,
            ),
        ),
        "its values of the miniatures are read off figures; an independent program's values of another "
        "trained BERT take their place",
    ),
    Paper(
        "2506.00846",
        "Infinite-width limit of an attention layer",
        (
            PaperFigure("limit-width", "distance to the limit against the width"),
            PaperFigure("limit-heads", "one head and many, and the way to a Gaussian"),
            PaperFigure("limit-scaling", "scalings 1/sqrt(n) and 1/n"),
            PaperFigure("limit-low-rank", "low-rank heads"),
            PaperFigure("limit-relu", "ReLU tokens"),
        ),
        "it shows curves; an independent program's values, of its recipe of kernels too, take their place",
    ),
    Paper(
        "2610.10033",
        "Spectrum of multi-head attention",
        (
            PaperFigure("limit-spectrum", "softmax attention and its Gaussian equivalent (table D.2)"),
            PaperFigure("limit-spectrum-large", "the two largest rows of that table", large=True),
            PaperFigure("limit-readout", "readouts: narrow keys against wide ones (D.1)"),
            PaperFigure("limit-arrival", "arrival times of gradient flow"),
        ),
    ),
    Paper(
        "2509.24914",
        "Single-head attention in high dimensions",
        (
            PaperFigure("learn-curves", "error against samples, three students"),
            PaperFigure("learn-spectrum", "spectrum of the trained matrix"),
            PaperFigure("learn-phase-diagram", "where attention learns its target"),
            PaperFigure("learn-scaling", "exponents for power-law targets"),
        ),
        "it shows curves; an independent program's values of the same equations take their place",
    ),
    Paper(
        "2506.01582",
        "Bayes-optimal learning of attention",
        (PaperFigure("learn-tokens", "E against samples through a softmax of 2, 3 and 4 tokens"),),
    ),
    Paper(
        "2609.03858",
        "Learning dynamics of attention",
        (
            PaperFigure("dynamics-flow", "gradient flow through four outputs"),
            PaperFigure("dynamics-students", "alignment and loss against time, three students"),
            PaperFigure("dynamics-spectra", "the spectrum on its way"),
            PaperFigure("dynamics-cost", "what one pass costs"),
            PaperFigure("dynamics-modes", "modes are learned in order"),
            PaperFigure(
                "dynamics-training",
                "heads of a real model beside the theory's picture",
                needs="the extra torch",
                large=True,
            ),
        ),
        "its figures are images that state neither the scale of the target nor of the start; an independent "
        "program's values take their place",
    ),
    Paper(
        "2108.11489",
        "Interpolation by two linear layers",
        (PaperFigure("regression-scale", "risk against the scale of the start"),),
        ABSTRACT,
    ),
    Paper(
        "2406.03171",
        "Importance weights under covariate shift",
        (PaperFigure("regression-shift", "weights and risk against the ridge"),),
        ABSTRACT,
    ),
    Paper(
        "2007.08322",
        "Early stopping of factors",
        (PaperFigure("early-stopping", "risk against the threshold of stopping"),),
        ABSTRACT,
    ),
    Paper(
        "2405.13721",
        "Matrix completion",
        (PaperFigure("complete-connectivity", "a missing entry against the scale of the start"),),
        ABSTRACT,
    ),
    Paper(
        "2201.13383",
        "Ensembles of learners",
        (PaperFigure("regression-ensemble", "error of 1, 4 and infinitely many learners"),),
        ABSTRACT,
    ),
)


def find_figures(name: str) -> list[tuple[Paper, PaperFigure]]:
    """The figures of a paper, or the one of a name; an `InputError` where there is neither.

    >>> [figure.study for _, figure in find_figures("2506.01582")]
    ['learn-tokens']
    """
    every = [(paper, figure) for paper in PAPERS for figure in paper.figures]
    pairs = [pair for pair in every if name in (pair[0].arxiv, pair[1].study)]
    if not pairs:
        raise InputError(f"{name}: no such paper or figure; attnlaw reproduce list names them all")
    return pairs
