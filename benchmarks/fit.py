"""Power-law fits of every matrix of a 12 x 768 encoder against the package `powerlaw`, on one core.

    python benchmarks/fit.py

Both sides get the same eigenvalues and search the same x_min; alpha must agree to 1e-6. Exits with status 1
when a claim does not hold.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import powerlaw
from audit import make_encoder
from claims import Claims
from threadpoolctl import threadpool_limits

from attnlaw import audit
from attnlaw.analysis.fit.model_fits import fit_spectra
from attnlaw.analysis.fit.tail import power_law_tails

GOAL, TOLERANCE = 20.0, 1e-6


def peer_fits(spectra: list[np.ndarray]) -> list[object]:
    """`powerlaw` without its default bound alpha <= 3, which drops candidates for x_min."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [powerlaw.Fit(x, verbose=0, parameter_ranges={"alpha": [1.0, None]}) for x in spectra]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        make_encoder(Path(name))
        measured = audit(name)
    spectra = [np.array(values) ** 2 for values in measured.spectra["singular_values"]]
    with threadpool_limits(1):
        started = time.perf_counter()
        ours = power_law_tails(spectra)
        after_ours = time.perf_counter()
        peers = peer_fits(spectra)
        after_peers = time.perf_counter()
        fit_spectra(measured.spectra, measured.matrices)
        after_all = time.perf_counter()
    ours_seconds, peer_seconds = after_ours - started, after_peers - after_ours
    apart = max(abs(a.alpha / b.alpha - 1) for a, b in zip(ours, peers, strict=True))
    same = sum(abs(a.x_min / b.xmin - 1) < TOLERANCE for a, b in zip(ours, peers, strict=True))
    print(f"power laws of {len(spectra)} matrices: {ours_seconds:.3f} s, powerlaw {peer_seconds:.1f} s")
    print(f"largest relative difference of alpha {apart:.1e}, same x_min {same} of {len(spectra)}")
    print(f"all laws, nulls and bootstraps of these matrices: {after_all - after_peers:.1f} s")
    claims = Claims()
    claims.add(
        f"power-law fits of {len(spectra)} matrices",
        f"{ours_seconds:.3f} s",
        f"`powerlaw`: {peer_seconds:.1f} s",
        peer_seconds / ours_seconds,
        GOAL,
    )
    claims.add("their alpha, largest relative difference", "", "`powerlaw`", apart, TOLERANCE, least=False)
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
