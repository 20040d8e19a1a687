"""The spectra of a whole network, arranged as the bounds need them.

Kinds of matrix: `qk`, `vo` (one per head), `cross_qk`, `cross_vo` (one per head, decoder layers only),
`ffn_in`, `ffn_gate` (gated feed-forward only), `ffn_out` (once per expert in a mixture of experts).
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
class ExpertSpectra:
    """The spectra of one expert of a router."""

    inner: Spectrum
    outer: Spectrum
    gate: Spectrum | None = None


@dataclass(frozen=True)
class LayerSpectra:
    """All spectra of one layer; what a layer does not have is None.

    `inner`, `gate` and `outer` are of the block that every token passes; `router_sum` is the most that
    the weights of the `experts` add up to for one token.
    """

    attention: Heads
    cross: Heads | None = None
    inner: Spectrum | None = None
    gate: Spectrum | None = None
    outer: Spectrum | None = None
    experts: tuple[ExpertSpectra, ...] = ()
    router_sum: float = 1.0

    def matrices(self) -> Iterator[tuple[str, int | None, int | None, Spectrum]]:
        """(kind, head or None, expert or None, spectrum) in the order of the rows of an audit."""
        for prefix, heads in (("", self.attention), ("cross_", self.cross)):
            if heads is not None:
                yield from ((f"{prefix}qk", head, None, spectrum) for head, spectrum in enumerate(heads.qk))
                yield from ((f"{prefix}vo", head, None, spectrum) for head, spectrum in enumerate(heads.vo))
        blocks: list[tuple[int | None, LayerSpectra | ExpertSpectra]] = [
            (None, self),
            *enumerate(self.experts),
        ]
        for expert, block in blocks:
            named = (("ffn_in", block.inner), ("ffn_gate", block.gate), ("ffn_out", block.outer))
            yield from ((kind, None, expert, spectrum) for kind, spectrum in named if spectrum is not None)


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
