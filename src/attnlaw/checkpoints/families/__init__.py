"""The table of families. A new family is a file here and a line below; order matters only for the last rows.

The names of `TORCH_ATTENTION` also occur inside `TORCH_LAYER`, and those inside `TORCH_TRANSFORMER`.
"""

from attnlaw.checkpoints.families.albert import ALBERT
from attnlaw.checkpoints.families.bert import BERT, DISTILBERT, MPNET
from attnlaw.checkpoints.families.family import Family, Stack
from attnlaw.checkpoints.families.gpt2 import GPT2
from attnlaw.checkpoints.families.llama import LLAMA, PHI3
from attnlaw.checkpoints.families.torch_nn import TORCH_ATTENTION, TORCH_LAYER, TORCH_TRANSFORMER
from attnlaw.checkpoints.families.whisper import WHISPER, WHISPER_OPENAI

FAMILIES: tuple[Family, ...] = (
    BERT,
    MPNET,
    DISTILBERT,
    ALBERT,
    GPT2,
    LLAMA,
    PHI3,
    WHISPER,
    WHISPER_OPENAI,
    TORCH_TRANSFORMER,
    TORCH_LAYER,
    TORCH_ATTENTION,
)

__all__ = ["FAMILIES", "Family", "Stack"]
