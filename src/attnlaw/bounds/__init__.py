"""Post hoc generalization proxies of a trained network, from its spectra."""

from attnlaw.bounds.network import ExpertSpectra, Heads, LayerSpectra, Network
from attnlaw.bounds.proxies import Proxies, proxies

__all__ = ["ExpertSpectra", "Heads", "LayerSpectra", "Network", "Proxies", "proxies"]
