"""The table of families. A new family is a file here (Python, or TOML as for `--map`) and a line below.

Where several families fit, the one that names the most tensors is taken, and of equals the first: the
names of `TORCH_LAYER` are those of `TORCH_TRANSFORMER` under any prefix.
"""

from importlib.resources import as_file, files

from attnlaw.models.families.albert import ALBERT
from attnlaw.models.families.bart import BART, MBART
from attnlaw.models.families.bert import BERT, DISTILBERT, MPNET
from attnlaw.models.families.deepseek import DEEPSEEK, DEEPSEEK_LITE
from attnlaw.models.families.family import Family, Stack
from attnlaw.models.families.gpt2 import GPT2, NANOGPT
from attnlaw.models.families.llama import LLAMA, PHI3
from attnlaw.models.families.llama_cpp import LLAMA_CPP, LLAMA_CPP_BERT, LLAMA_CPP_GPT2
from attnlaw.models.families.opt import OPT
from attnlaw.models.families.t5 import T5
from attnlaw.models.families.toml_file import read_family
from attnlaw.models.families.torch_nn import TORCH_ATTENTION, TORCH_LAYER, TORCH_TRANSFORMER
from attnlaw.models.families.vit import VIT, VIT_MODULE, VIT_TIMM
from attnlaw.models.families.whisper import WHISPER, WHISPER_OPENAI

with as_file(files(__name__) / "gpt_neox.toml") as _file:
    GPT_NEOX = read_family(_file)

FAMILIES: tuple[Family, ...] = (
    BERT,
    MPNET,
    DISTILBERT,
    ALBERT,
    GPT2,
    NANOGPT,
    GPT_NEOX,
    OPT,
    LLAMA,
    PHI3,
    DEEPSEEK,
    DEEPSEEK_LITE,
    LLAMA_CPP,
    LLAMA_CPP_GPT2,
    LLAMA_CPP_BERT,
    WHISPER,
    WHISPER_OPENAI,
    BART,
    MBART,
    T5,
    VIT,
    VIT_MODULE,
    VIT_TIMM,
    TORCH_TRANSFORMER,
    TORCH_LAYER,
    TORCH_ATTENTION,
)

__all__ = ["FAMILIES", "Family", "Stack", "read_family"]
