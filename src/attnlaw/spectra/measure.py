"""Measurement of every matrix of a model in threads. A thread reads a matrix, factorises it and drops it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, zip_longest
from zlib import crc32

import numpy as np

from attnlaw.checkpoints.blocks import NONE, Attention, FactorSource, Product
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, LAYER_GROUPS, MatrixLocation, Network
from attnlaw.checkpoints.settings import DEFAULT_ARITHMETIC, STORAGE, Arithmetic, ModelSettings
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError, as_input_error
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.threads import in_threads, usable_cores
from attnlaw.spectra.approximate import approximate_spectrum
from attnlaw.spectra.cost import matrix_operations, operations_per_second, product_operations
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import LARGE as MANY_ENTRIES
from attnlaw.spectra.factored import HeadSpectrum, spectrum_and_roots
from attnlaw.spectra.head_sizes import block_factors
from attnlaw.spectra.precision import Underflow, rounding
from attnlaw.spectra.scores import ScoreReader, missing_sizes_reason
from attnlaw.spectra.spectrum import PAST_FLOAT64, Spectrum
from attnlaw.spectra.stacked import LARGEST_STACK, stacked_spectra

# Bytes of matrices in memory at a time: 0.8 GB, two feed-forward matrices of LLaMA-7B in float64.
IN_FLIGHT = 8 * 10**8
# With `approximate`, matrices are approximated if their shorter side is at least this (twice this if stored
# in 16 bits or less). Below it an approximation saves no time (measured by benchmarks/growth.py).
LARGE = 8192
# The expected time is logged if it is longer than this.
ANNOUNCED_SECONDS = 20
# Operations a second that every core does.
SLOW_RATE = 1e9


@dataclass(frozen=True)
class Selection:
    """The matrices of a model that are measured, and the precision."""

    layers: Sequence[int] | None = None  # numbers of the layers; None means all
    groups: tuple[str, ...] = tuple(LAYER_GROUPS)  # names of `LAYER_GROUPS`
    arithmetic: Arithmetic = DEFAULT_ARITHMETIC
    excluded: frozenset[MatrixLocation] = frozenset()  # locations that cannot be measured
    experts: int | None = None  # number of experts of each layer, the first ones; None means all

    @property
    def whole(self) -> bool:
        """Whether every matrix of every layer is selected."""
        return self.every_kind and self.experts is None

    @property
    def every_kind(self) -> bool:
        """Whether every kind of matrix of every layer is selected. Some experts may be left out."""
        return self.layers is None and (not self.groups or set(LAYER_GROUPS) <= {*self.groups})

    @classmethod
    def from_settings(
        cls, settings: ModelSettings, network: Network[Product], arithmetic: Arithmetic = DEFAULT_ARITHMETIC
    ) -> Selection:
        """Return the selection that the settings describe. All matrices of an adapter are selected."""
        if not network.layers:
            return cls(groups=(), arithmetic=arithmetic)
        chosen = settings.chosen_layers(len(network.layers) + len(network.other_layers))
        if chosen and not any(layer.index in chosen for layer in network.layers):
            raise BadSetting("layers", "none of these layers has softmax attention", settings.layers)
        groups = tuple(LAYER_GROUPS) if settings.only is None else tuple(dict.fromkeys(settings.only))
        return cls(chosen, groups, arithmetic)

    def includes(self, location: MatrixLocation) -> bool:
        group = KINDS[location.kind].group
        inside = self.layers is None or location.layer is None or location.layer in self.layers
        if self.experts is not None and location.expert is not None and location.expert >= self.experts:
            return False
        return location not in self.excluded and (group is None or (group in self.groups and inside))


@dataclass(frozen=True)
class Unit:
    """A group of matrices that are read together: one matrix, or a product's matrices of all heads.

    `first` is the position of its first matrix in the order of table rows. `rounding` is the relative error
    with which the tensors were stored, if float32 may be precise enough (see `precision`). If `exact` is
    true, norms use every entry.
    """

    first: int
    location: MatrixLocation
    product: Product
    members: int
    approximate: bool = False
    rounding: float | None = None
    exact: bool = False

    @property
    def bytes(self) -> int:
        """The memory in bytes that the tensors of this group of matrices need."""
        return self.product.elements * (8 if self.rounding is None else 4)

    @property
    def seed(self) -> int:
        """The seed for this unit's random numbers. It differs between units, so errors are independent."""
        return crc32(f"{self.product.tensors} {self.location.expert}".encode())

    @property
    def operations(self) -> float:
        rows, cols = self.product.shape
        if self.product.inner is None:
            return matrix_operations(rows, cols, self.approximate, self.rounding is not None)
        every = self.exact or rows * cols <= MANY_ENTRIES
        return self.members * product_operations(rows, self.product.inner, cols, every)


UnitTest = Callable[[Unit], bool]
UnitMeasurer = Callable[[Model, Unit], list[Spectrum]]


def expected_seconds(
    model: Model, selection: Selection, jobs: int | None = None, is_kept: UnitTest | None = None
) -> float:
    """Estimate how many seconds `measure` will take. Units for which `is_kept` returns true take none."""
    units = units_of(model, selection)
    operations = sum(unit.operations for unit in units if is_kept is None or not is_kept(unit))
    # The rate of a slow core is enough to see that little work takes no time.
    rate = operations_per_second() if operations > ANNOUNCED_SECONDS * SLOW_RATE else SLOW_RATE
    return operations / rate / (jobs or usable_cores())


def log_expected_time(
    model: Model, selection: Selection, jobs: int | None = None, is_kept: UnitTest | None = None
) -> None:
    """Log how long `measure` will take, if this is more than `ANNOUNCED_SECONDS`."""
    log = logging.getLogger("attnlaw")
    seconds = expected_seconds(model, selection, jobs, is_kept) if log.isEnabledFor(logging.INFO) else 0
    if seconds > ANNOUNCED_SECONDS:
        words = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        log.info("expected time: about %s (for very large matrices, --approximate is faster)", words)


def measure(
    model: Model,
    selection: Selection,
    jobs: int | None = None,
    progress: Progress = no_progress,
    on_spectrum: Callable[[Spectrum], object] = lambda spectrum: None,
    measure_unit: UnitMeasurer | None = None,
) -> Network[Spectrum | None]:
    """Measure the selected matrices of a model. All other leaves of the network are None.

    Large matrices are first, so that no thread has to wait for one at the end. While a thread factorises one
    unit, the operating system reads the tensors that are probably needed next. The numbers do not depend on
    the number of threads (`jobs`). `on_spectrum` is called with each spectrum, in the thread that measured
    it. `measure_unit` replaces `unit_spectra`, for example to store its results.
    """
    units = units_of(model, selection)
    order = sorted(range(len(units)), key=lambda number: -units[number].bytes)

    def run(unit: Unit, following: Unit | None) -> list[Spectrum]:
        for view in () if following is None else following.product.views:
            model.tensors.prefetch(view.tensor, view.member)
        spectra = (measure_unit or unit_spectra)(model, unit)
        for spectrum in spectra:
            on_spectrum(spectrum)
        return spectra

    by_size = [units[number] for number in order]
    pairs = zip_longest(by_size, by_size[jobs or usable_cores() :])
    work = [(unit.bytes, partial(run, unit, following)) for unit, following in pairs]
    results = in_threads(work, IN_FLIGHT, jobs, lambda done: progress(done, len(units)))
    spectra = dict(zip(order, results, strict=True))
    return spectra_tree(model, selection, chain(*(spectra[number] for number in range(len(units)))))


def spectra_tree(model: Model, selection: Selection, spectra: Iterable[Spectrum]) -> Network[Spectrum | None]:
    """Return the network with spectra at the selected leaves, given in the order of table rows."""
    following = iter(spectra)
    return model.network.map(lambda location, _: next(following) if selection.includes(location) else None)


def units_of(model: Model, selection: Selection) -> list[Unit]:
    """Return the selected matrices in units. Matrices that differ only in their head form one unit."""
    leaves = enumerate(model.network.leaves())
    chosen = [(number, leaf) for number, leaf in leaves if selection.includes(leaf[0])]
    if not chosen:
        raise InputError(
            f"{model.name}: this model has no matrices of kind {', '.join(selection.groups)} (the "
            "unembedding may be the same matrix as the embedding); choose other kinds with --only"
        )
    units = []
    groups = groupby(chosen, key=lambda pair: (replace(pair[1][0], head=None), pair[1][1]))
    for (location, product), members in groups:
        numbers = [number for number, _ in members]
        units.append(_choose_arithmetic(model, selection, Unit(numbers[0], location, product, len(numbers))))
    return units


def _choose_arithmetic(model: Model, selection: Selection, unit: Unit) -> Unit:
    product, how = unit.product, selection.arithmetic
    narrow = how.precision == STORAGE and all(model.is_narrow(view) for view in product.views)
    least = 2 * LARGE if narrow else LARGE
    if how.approximate and product.block is None and min(product.shape) >= least:
        return replace(unit, approximate=True)
    units = [rounding(model.tensors.dtype(view.tensor)) or 0.0 for view in product.views] if narrow else []
    return replace(unit, rounding=min(units, default=None), exact=how.exact)


def unit_spectra(model: Model, unit: Unit) -> list[Spectrum]:
    """Read the matrices of a unit and return their spectra, in order."""
    what = f"{model.tensors.source}: {unit.location.kind} from {', '.join(unit.product.tensors)}"
    remedy = "use a machine with more memory, or leave this matrix out with --only"
    try:
        with as_input_error(f"{what} does not fit into memory", remedy, MemoryError, with_reason=False):
            return _spectra(model, unit)
    except OverflowError as error:
        raise InputError(f"{what}: {error}; training has diverged: use an earlier checkpoint") from error
    except Underflow as error:
        larger = "multiply these weights by a power of two, or leave this matrix out with --only or --layers"
        raise InputError(f"{what}: {error}; {larger}") from error


def _spectra(model: Model, unit: Unit) -> list[Spectrum]:
    product = unit.product
    if product.block is not None:
        return _heads(model, unit, product.block)
    matrix = replace(model, keeps_float32=unit.rounding is not None).read(product.views[0])
    norm = product.norm
    fold = None if norm is None or norm.kind == NONE else model.fold(norm)
    if unit.approximate:
        spectrum = approximate_spectrum(matrix, unit.seed, fold)
    else:
        spectrum = matrix_spectrum(matrix, fold, unit.rounding)
    return [spectrum if norm is None or fold else replace(spectrum, applied=spectrum.as_stored)]


def _heads(model: Model, unit: Unit, block: FactorSource) -> list[Spectrum]:
    kind, shape = unit.location.kind, unit.product.shape
    reading = replace(model, keeps_float32=unit.rounding is not None)
    sampled = shape[0] * shape[1] > MANY_ENTRIES and not unit.exact

    def seed(head: int) -> int | None:
        return unit.seed + head if sampled else None

    attention = block if isinstance(block, Attention) else None
    stacked = attention is not None and not attention.latent and 8 * unit.product.elements < LARGEST_STACK
    pairs: Iterable[tuple[tuple[Reals, Reals], HeadSpectrum | None]]
    if attention is not None and stacked:
        pairs = stacked_spectra(reading, attention, kind, seed)
    else:
        pairs = ((pair, None) for pair in block.factors(reading, kind))
    reader = None
    if attention is not None and KINDS[kind].scores and missing_sizes_reason(attention) is None:
        reader = ScoreReader(model, attention)
    spectra, roots = [], []
    for head, (pair, known) in enumerate(pairs):
        pair = pair[0].astype(np.float64, copy=False), pair[1].astype(np.float64, copy=False)
        quick = unit.rounding is not None
        spectrum, stored, folded = known or _head(model, block, kind, pair, quick, seed(head))
        if reader is not None and folded is not None and spectrum.applied is not None:
            spectrum = replace(spectrum, scores=reader(head, pair, folded, spectrum.applied.values))
        spectra.append(replace(spectrum, latent=unit.product.latent))
        roots.append(stored)
    if attention is None:
        return spectra
    # Heads of a group share the sizes of their factors.
    sizes = block_factors(model, attention, kind, shape, roots, [spectrum.nuclear for spectrum in spectra])
    return [replace(spectrum, factors=factors) for spectrum, factors in zip(spectra, sizes, strict=True)]


def _head(
    model: Model,
    block: FactorSource,
    kind: str,
    pair: tuple[Reals, Reals],
    quick: bool,
    seed: int | None,
) -> HeadSpectrum:
    try:
        with np.errstate(over="raise", invalid="raise"):
            folded = block.applied(model, kind, *pair)
    except FloatingPointError as error:
        raise OverflowError(PAST_FLOAT64) from error
    return spectrum_and_roots(*pair, folded, quick, seed)
