"""Every matrix of a model, measured: read, factorised and dropped again, in threads, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from zlib import crc32

from threadpoolctl import threadpool_limits

from attnlaw.base.errors import InputError
from attnlaw.models import Attention, Model, View
from attnlaw.numerics.cores import usable_cores
from attnlaw.spectra.cost import matrix_operations, operations_per_second, product_operations
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum
from attnlaw.spectra.gate import Gate
from attnlaw.spectra.lanczos import approximate_spectrum
from attnlaw.spectra.spectrum import Spectrum

Progress = Callable[[int, int], None]

# What `only` accepts, and the kinds of matrix that each word selects.
GROUPS: dict[str, tuple[str, ...]] = {
    "qk": ("qk",),
    "vo": ("vo",),
    "cross": ("cross_qk", "cross_vo"),
    "ffn": ("ffn_in", "ffn_gate", "ffn_out"),
    "embedding": ("embedding",),
    "unembedding": ("unembedding",),
}
BY_DEFAULT = ("qk", "vo", "cross", "ffn")

# Elements of float64 matrices in flight at a time: 0.8 GB, two feed-forward matrices of LLaMA-7B.
IN_FLIGHT = 10**8
# On request, matrices whose shorter side is at least this are approximated: below it that saves no time.
LARGE = 4096


@dataclass(frozen=True)
class Selection:
    """Which layers (None: all) and kinds of matrix to measure, and whether to approximate large ones."""

    layers: range | None = None
    groups: tuple[str, ...] = BY_DEFAULT
    approximate: bool = False

    @classmethod
    def parse(
        cls, layers: str | int | None, only: str | Sequence[str] | None, depth: int, approximate: bool = False
    ) -> Selection:
        """From `"0:4"` (as a slice) or `"3"`, and `"qk,vo"`; in Python also `3` and `["qk", "vo"]`.

        >>> Selection.parse("1:3", "qk", depth=4)
        Selection(layers=range(1, 3), groups=('qk',), approximate=False)
        """
        named = only.split(",") if isinstance(only, str) else only
        groups = tuple(dict.fromkeys(named)) if named is not None else BY_DEFAULT
        for group in groups:
            if group not in GROUPS:
                raise InputError(
                    f"--only {group}: unknown; choose from {', '.join(GROUPS)}, joined by commas"
                )
        if layers is None:
            return cls(None, groups, approximate)
        try:
            chosen = _slice(depth, str(layers))
        except (ValueError, TypeError) as error:
            raise InputError(f"--layers {layers}: expected START:STOP, such as 0:4, or one number") from error
        if not chosen:
            raise InputError(f"--layers {layers}: selects none of the {depth} layers (0 to {depth - 1})")
        return cls(chosen, groups, approximate)

    def is_whole(self, model: Model) -> bool:
        """Whether every matrix of every layer is measured, as the bounds need it."""
        selected = {(unit.layer, unit.kind) for unit in _units(model, self)}
        return all((unit.layer, unit.kind) in selected for unit in _units(model, Selection()))


def _slice(depth: int, text: str) -> range:
    """The layers of `"3"` or `"0:4"`, negative numbers from the end; none where they do not exist."""
    if ":" in text:
        return range(depth)[slice(*[int(part) if part else None for part in text.split(":")])]
    number = int(text)
    return range(number % depth, number % depth + 1) if -depth <= number < depth else range(0)


@dataclass(frozen=True)
class Measured:
    """One matrix of a model: its place, the tensors it comes from, its spectrum."""

    layer: int | None
    stack: str | None
    head: int | None
    kind: str
    tensors: tuple[str, ...]
    spectrum: Spectrum
    expert: int | None = None


@dataclass(frozen=True)
class _Unit:
    """What is read together: one matrix, or all heads of one product of two tensors."""

    layer: int | None
    stack: str | None
    kind: str
    views: tuple[View, ...]
    attention: Attention | None = None
    expert: int | None = None
    approximate: bool = False

    @property
    def operations(self) -> float:
        shape = self.views[0].shape
        if self.attention is None:
            return matrix_operations(*shape, self.approximate)
        heads, inner = self.attention.heads, self.attention.head_size
        return heads * product_operations(shape[0], inner, shape[0])


def expected_seconds(model: Model, selection: Selection, jobs: int | None = None) -> float:
    """About how long `measure` will take: operations over the rate of this machine's matrix products."""
    operations = sum(unit.operations for unit in _units(model, selection))
    return operations / operations_per_second() / (jobs or usable_cores())


def measure(
    model: Model, selection: Selection, jobs: int | None = None, progress: Progress | None = None
) -> list[Measured]:
    """Measure the selected matrices; rows in the model's order whatever the number of threads.

    Each thread works with one BLAS thread, so the numbers do not depend on `jobs`.
    """
    units = list(_units(model, selection))
    if not units:
        raise InputError(
            f"{model.name}: has no matrices of kind {','.join(selection.groups)} "
            "(an unembedding may be tied to the embedding); choose another"
        )
    results: dict[int, list[Measured]] = {}
    gate = Gate(IN_FLIGHT)
    with threadpool_limits(1), ThreadPoolExecutor(jobs or usable_cores()) as pool:
        futures = {pool.submit(_measure_unit, model, unit, gate): place for place, unit in enumerate(units)}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                results[futures[future]] = future.result()
                if progress is not None:
                    progress(done, len(units))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [row for place in range(len(units)) for row in results[place]]


def _units(model: Model, selection: Selection) -> Iterator[_Unit]:
    kinds = [kind for group in selection.groups for kind in GROUPS[group]]
    for layer in model.layers:
        if selection.layers is not None and layer.index not in selection.layers:
            continue
        found: list[_Unit] = []
        for prefix, block in (("", layer.attention), ("cross_", layer.cross)):
            if block is not None:
                for kind in (f"{prefix}qk", f"{prefix}vo"):
                    found.append(_Unit(layer.index, layer.stack, kind, block.views(kind), block))
        for expert, maps in ((None, layer.feed_forward), *enumerate(layer.experts)):
            if maps is not None:
                named = (("ffn_in", maps.inner), ("ffn_gate", maps.gate), ("ffn_out", maps.outer))
                for kind, view in named:
                    if view is not None:
                        found.append(_single(layer.index, layer.stack, kind, view, selection, expert))
        yield from (unit for unit in found if unit.kind in kinds)
    for kind, view in (("embedding", model.embedding_view), ("unembedding", model.unembedding_view)):
        if kind in kinds and view is not None:
            yield _single(None, None, kind, view, selection)


def _single(
    layer: int | None,
    stack: str | None,
    kind: str,
    view: View,
    selection: Selection,
    expert: int | None = None,
) -> _Unit:
    large = selection.approximate and min(view.shape) >= LARGE
    return _Unit(layer, stack, kind, (view,), expert=expert, approximate=large)


def _measure_unit(model: Model, unit: _Unit, gate: Gate) -> list[Measured]:
    with gate.holding(sum(view.elements for view in unit.views)):
        return _measured(model, unit)


def _measured(model: Model, unit: _Unit) -> list[Measured]:
    names = tuple(name for view in unit.views for name in view.tensors)
    try:
        return _spectra(model, unit, names)
    except OverflowError as error:
        raise InputError(
            f"{model.tensors.source}: {unit.kind} from {', '.join(names)}: {error}; "
            "training diverged, use an earlier checkpoint"
        ) from error
    except MemoryError as error:
        raise InputError(
            f"{model.tensors.source}: {unit.kind} from {', '.join(names)} does not fit into memory; "
            "use a machine with more, or leave it out with --only"
        ) from error


def _spectra(model: Model, unit: _Unit, names: tuple[str, ...]) -> list[Measured]:
    if unit.attention is None:
        matrix = model.read(unit.views[0])
        # A seed of its own for each matrix, the same in every run: their errors are independent.
        seed = crc32(f"{names} {unit.expert}".encode())
        spectrum = approximate_spectrum(matrix, seed) if unit.approximate else matrix_spectrum(matrix)
        return [Measured(unit.layer, unit.stack, None, unit.kind, names, spectrum, unit.expert)]
    return [
        Measured(unit.layer, unit.stack, head, unit.kind, names, product_spectrum(left, right))
        for head, (left, right) in enumerate(model.head_factors(unit.attention, unit.kind))
    ]
