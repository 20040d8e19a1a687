"""Post hoc generalization proxies of a trained network, from its spectra."""

from attnlaw.bounds.network import Heads, LayerSpectra, Network
from attnlaw.bounds.proxies import Proxies, proxies

__all__ = ["Heads", "LayerSpectra", "Network", "Proxies", "proxies"]
