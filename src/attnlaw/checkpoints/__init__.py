"""Trained checkpoints: files to tensors (formats), tensors to heads and feed-forward matrices (families)."""

from attnlaw.checkpoints.model import Attention, FeedForward, Layer, Model, View
from attnlaw.checkpoints.open import open_model

__all__ = ["Attention", "FeedForward", "Layer", "Model", "View", "open_model"]
