"""The spectra of a whole network, arranged as the bounds need them.

Kinds of matrix: `qk`, `vo` (one per head), `cross_qk`, `cross_vo` (one per head, decoder layers only),
`ffn_in`, `ffn_gate` (gated feed-forward only), `ffn_out`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attnlaw.spectra import Spectrum


@dataclass(frozen=True)
class Heads:
    """The QK and VO spectra of one attention block, head by head."""

    qk: tuple[Spectrum, ...]
    vo: tuple[Spectrum, ...]


@dataclass(frozen=True)
class LayerSpectra:
    """All spectra of one layer; what a layer does not have is None."""

    attention: Heads
    cross: Heads | None = None
    inner: Spectrum | None = None
    gate: Spectrum | None = None
    outer: Spectrum | None = None

    def matrices(self) -> Iterator[tuple[str, int | None, Spectrum]]:
        """(kind, head or None, spectrum) in the order of the rows of an audit."""
        for prefix, block in (("", self.attention), ("cross_", self.cross)):
            if block is not None:
                yield from ((f"{prefix}qk", head, spectrum) for head, spectrum in enumerate(block.qk))
                yield from ((f"{prefix}vo", head, spectrum) for head, spectrum in enumerate(block.vo))
        for kind, spectrum in (("ffn_in", self.inner), ("ffn_gate", self.gate), ("ffn_out", self.outer)):
            if spectrum is not None:
                yield kind, None, spectrum


@dataclass(frozen=True)
class Network:
    """Layers, the order in which they are applied, the hidden size and the activation's constant.

    `applications` lists the layer used at each depth; its length is the depth L of the formulas.
    """

    layers: tuple[LayerSpectra, ...]
    applications: tuple[int, ...]
    hidden_size: int
    lipschitz: float

    @property
    def depth(self) -> int:
        return len(self.applications)
