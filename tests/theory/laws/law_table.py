"""The table of all laws, on which the properties of a law are tested."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.heavy_tailed import HighTemperatureMP
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.laws.symmetric_product import SymmetricProduct
from attnlaw.theory.laws.tail_laws import Lognormal, PowerLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw
from attnlaw.theory.laws.transformed import Folded, Mirrored, Rectified, Shrunk, Thresholded


@dataclass(frozen=True)
class Case:
    """A law, the error of its quadrature, and where its mass ends if not at the end of its support.

    `reach` is None for tails too heavy for a contour around them. Smooth densities with square-root edges are
    integrated to rounding. A jump at zero (rectified) or a tabulated density (shrunk) costs digits.
    """

    law: Law
    error: float = 1e-10
    reach: float | None = None
    heavy: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        low, high = self.law.support
        return low, self.reach or high


BLURRED = FreeConvolution(MarchenkoPastur(0.5), 0.4)
PRODUCT = FreeConvolution(SymmetricProduct(0.5, 1.3), 0.8)
CASES = {
    "semicircle": Case(Semicircle(1.3)),
    "marchenko-pastur, low rank": Case(MarchenkoPastur(0.3, 2.0)),
    "marchenko-pastur, full rank": Case(MarchenkoPastur(2.5)),
    "free convolution": Case(BLURRED),
    "free convolution, two intervals": Case(FreeConvolution(MarchenkoPastur(0.1), 0.2)),
    "free convolution, discrete": Case(FreeConvolution(Discrete((0.0, 1.0, 4.0), (0.5, 0.3, 0.2)), 0.7)),
    "rectified": Case(Rectified(BLURRED, 0.6, 1.2), error=2e-6),
    "thresholded": Case(Thresholded(BLURRED, 0.9), error=2e-6),
    "shrunk": Case(Shrunk(BLURRED), error=2e-6),
    "rectified, both sides, cut": Case(Rectified(PRODUCT, 0.5, 1.2, sides=2, cut=0.7), error=2e-6),
    "free convolution, product": Case(PRODUCT),
    "product of factors, low rank, folded": Case(Folded(SymmetricProduct(0.3)), error=2e-6),
    "product of factors, full rank": Case(SymmetricProduct(4.0, 1.7)),
    "folded": Case(Folded(PRODUCT), error=2e-6),
    "mirrored": Case(Mirrored(BLURRED)),
    "discrete": Case(Discrete((0.5, 1.0, 4.0), (0.5, 0.3, 0.2))),
    "head null": Case(HeadNull(0.25)),
    "head null, small": Case(HeadNull(1 / 128)),
    "head null, square": Case(HeadNull(1.0)),
    "power law": Case(PowerLaw(6.0, 2.0), heavy=True),
    "lognormal": Case(Lognormal(0.3, 0.5), heavy=True),
    "lognormal tail": Case(Lognormal(0.3, 0.5, 2.0), heavy=True),
    "lognormal, cut below": Case(Lognormal(0.3, 0.5, 0.8), heavy=True),
    "high temperature": Case(HighTemperatureMP(12.0, 0.25), reach=12.0),
    "high temperature, hot": Case(HighTemperatureMP(0.8, 0.3), reach=40.0),
    "high temperature, cold": Case(HighTemperatureMP(900.0, 0.5), reach=4.5),
    "high temperature, nearly square": Case(HighTemperatureMP(20.0, 0.95), reach=20.0),
    "attention matrix": Case(AttentionMatrixLaw(1.0, 1.0)),
    "attention matrix, two intervals": Case(AttentionMatrixLaw(1.0, 0.064)),
    "attention matrix, wide heads": Case(AttentionMatrixLaw(0.3, 5.0)),
    "multi-head attention": Case(MultiHeadLaw(1.0, 4, 16.0)),
    "multi-head attention, narrow heads": Case(MultiHeadLaw(0.9, 8, 0.3, head_size=8)),
    "multi-head values": Case(MultiHeadLaw(0.7, 3, 1.5, 1.5)),
    "multi-head output, atom": Case(MultiHeadLaw(0.5, 8, 0.5, 0.5, 2.0)),
    "multi-head output, square": Case(MultiHeadLaw(1.0, 16, 1.0, 1.0, 1.0)),
    "tied values, atom": Case(TiedValuesLaw(0.8, 4, 0.6)),
    "tied values, output": Case(TiedValuesLaw(1.0, 16, 16.0, 16.0)),
    "tied values, hard edge": Case(TiedValuesLaw(1.0, 8, 0.5, 0.5)),
}
