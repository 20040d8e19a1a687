"""Which model types of the installed `transformers` open, each held against its own forward pass.

    python benchmarks/families.py [TYPE ...]      (default: all of the table)

Every type of the table is built small with random parameters in float64, runs once, is saved, and is opened
from disk. `opened` means that norms, scores, heads and feed-forward blocks as attnlaw reads them are those of
the run (tests/checkpoints/forward_pass.py), with the largest error of scores and heads relative to the
largest
entry; `refused` gives the line that a user sees. Exits with status 1 where one is opened and read wrongly.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from checkpoints.forward_pass import check, make, recording, tokens
from checkpoints.small import BART, LATENT, PLAIN, SPECIAL, T5, VOCABULARY, WHISPER

from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

TOLERANCE = 1e-10
SINGLE = 1e-5  # of sums of rotations in float32
# Types whose own code computes in float32 whatever it is asked, here and there.
ROUNDED = ("codegen", "deberta-v2", "deepseek_v2", "gptj")

Inputs = Callable[[], dict[str, torch.Tensor]]


def pair() -> dict[str, torch.Tensor]:
    return {"input_ids": tokens()["input_ids"], "decoder_input_ids": tokens()["input_ids"][:, :5]}


def long() -> dict[str, torch.Tensor]:
    """Twice the window of a Longformer, which else adds tokens of its own."""
    return {"input_ids": torch.arange(2, 10)[None]}


def long_pair() -> dict[str, torch.Tensor]:
    return pair() | long()


def masked() -> dict[str, torch.Tensor]:
    return tokens() | {"attention_mask": torch.ones(1, 7, dtype=torch.long)}


def pixels(size: int = 8, frames: int | None = None) -> dict[str, torch.Tensor]:
    shape = (1, 3, size, size) if frames is None else (1, frames, 3, size, size)
    return {"pixel_values": torch.randn(shape, dtype=torch.float64, generator=torch.manual_seed(3))}


def both() -> dict[str, torch.Tensor]:
    return {**tokens(), **pixels()}


def sound() -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(1, 90, dtype=torch.float64, generator=torch.manual_seed(3))}


def spoken(length: int = 18) -> dict[str, torch.Tensor]:
    features = torch.randn(1, 8, length, dtype=torch.float64, generator=torch.manual_seed(5))
    return {"input_features": features, "decoder_input_ids": tokens()["input_ids"]}


def listened() -> dict[str, torch.Tensor]:
    inputs = spoken()
    return inputs | {"input_features": inputs["input_features"].transpose(1, 2)}


def patches() -> dict[str, torch.Tensor]:
    pixel_values = torch.randn(1, 4, 48, dtype=torch.float64, generator=torch.manual_seed(3))
    mask, shapes = torch.ones(1, 4, dtype=torch.long), torch.tensor([[2, 2]])
    return {"pixel_values": pixel_values, "pixel_attention_mask": mask, "spatial_shapes": shapes}


@dataclass(frozen=True)
class Small:
    """A class of `transformers`, the sizes of its config, and what it is run on."""

    kind: str
    sizes: dict[str, Any]
    inputs: Inputs = tokens


TEXT = PLAIN | {"vocab_size": VOCABULARY} | SPECIAL
GROUPED = TEXT | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 10}
EVEN = GROUPED | {"head_dim": 8}
BROAD = GROUPED | {"hidden_size": 32}
ROUTED = EVEN | {"num_experts_per_tok": 2, "moe_intermediate_size": 20}
EXPERTS = ROUTED | {"num_experts": 3}
LOCAL = ROUTED | {"num_local_experts": 3}
MOE = GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 24, "n_head": 4, "n_layer": 2} | SPECIAL
GEMMA = WIDE | {"query_pre_attn_scalar": 7}
DEEPSEEK = TEXT | LATENT | {"num_experts_per_tok": 2}
VISION = PLAIN | {"image_size": 8, "patch_size": 4}
DINO = {key: VISION[key] for key in VISION if key != "intermediate_size"} | {"mlp_ratio": 2}
TOWERS = {
    "text_config": TEXT | {"max_position_embeddings": 16, "projection_dim": 10},
    "vision_config": VISION | {"hidden_size": 32, "intermediate_size": 40, "projection_dim": 10},
}
ALIKE = {"text_config": TOWERS["text_config"], "vision_config": VISION | {"intermediate_size": 40}}
SPEECH = TEXT | {
    "conv_dim": (6, 6),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
}
HYBRID = EVEN | {
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "layer_types": ["linear_attention", "full_attention"],
}

LLAMA4 = LOCAL | {"intermediate_size_mlp": 40, "num_experts_per_tok": 1}
GEMMA4 = EVEN | {
    "layer_types": ["sliding_attention", "full_attention"],
    "global_head_dim": 12,
    "hidden_size_per_layer_input": 6,
    "vocab_size_per_layer_input": VOCABULARY,
}

TYPES: dict[str, Small] = {
    # Encoders of text.
    "bert": Small("BertForMaskedLM", TEXT),
    "roberta": Small("RobertaForMaskedLM", TEXT),
    "xlm-roberta": Small("XLMRobertaForMaskedLM", TEXT),
    "xlm-roberta-xl": Small("XLMRobertaXLForMaskedLM", TEXT),
    "camembert": Small("CamembertForMaskedLM", TEXT),
    "electra": Small("ElectraForPreTraining", TEXT | {"embedding_size": 16}),
    "distilbert": Small(
        "DistilBertForMaskedLM",
        {"vocab_size": VOCABULARY, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 36},
    ),
    "mpnet": Small("MPNetForMaskedLM", TEXT),
    "albert": Small("AlbertForMaskedLM", TEXT | {"embedding_size": 16, "num_hidden_layers": 6}),
    "ernie": Small("ErnieForMaskedLM", TEXT),
    "data2vec-text": Small("Data2VecTextForMaskedLM", TEXT),
    "megatron-bert": Small("MegatronBertForMaskedLM", TEXT),
    "roberta-prelayernorm": Small("RobertaPreLayerNormForMaskedLM", TEXT),
    "rembert": Small("RemBertForMaskedLM", TEXT | {"input_embedding_size": 16}),
    "esm": Small("EsmForMaskedLM", TEXT | {"mask_token_id": 3}),
    "nomic_bert": Small("NomicBertForMaskedLM", TEXT),
    "modernbert": Small("ModernBertForMaskedLM", TEXT),
    "eurobert": Small("EuroBertForMaskedLM", GROUPED),
    "deberta-v2": Small("DebertaV2ForMaskedLM", TEXT | {"relative_attention": True, "pos_att_type": ["p2c"]}),
    "xlnet": Small(
        "XLNetLMHeadModel",
        {"vocab_size": VOCABULARY, "d_model": 24, "n_layer": 2, "n_head": 4, "d_inner": 36},
    ),
    "longformer": Small(
        "LongformerModel", TEXT | {"attention_window": 4, "max_position_embeddings": 32}, long
    ),
    # Decoders.
    "gpt2": Small("GPT2LMHeadModel", GPT2),
    "gpt_neo": Small(
        "GPTNeoForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 24,
            "num_heads": 4,
            "num_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            **SPECIAL,
        },
    ),
    "gptj": Small("GPTJForCausalLM", GPT2 | {"rotary_dim": 4}),
    "codegen": Small("CodeGenForCausalLM", GPT2 | {"rotary_dim": 4}),
    "gpt_bigcode": Small("GPTBigCodeForCausalLM", GPT2),
    "gpt_neox": Small("GPTNeoXForCausalLM", TEXT),
    "openai-gpt": Small("OpenAIGPTLMHeadModel", GPT2),
    "opt": Small("OPTForCausalLM", TEXT | {"ffn_dim": 36, "word_embed_proj_dim": 24}),
    "biogpt": Small("BioGptForCausalLM", TEXT),
    "xglm": Small(
        "XGLMForCausalLM",
        {"vocab_size": VOCABULARY, "d_model": 24, "ffn_dim": 36, "num_layers": 2, "attention_heads": 4}
        | SPECIAL,
    ),
    "bloom": Small(
        "BloomForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 24, "n_layer": 2, "n_head": 4}, masked
    ),
    "mpt": Small("MptForCausalLM", {"vocab_size": VOCABULARY, "d_model": 24, "n_heads": 4, "n_layers": 2}),
    "falcon": Small(
        "FalconForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
        | {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 36}
        | SPECIAL,
    ),
    "phi": Small("PhiForCausalLM", BROAD),
    "phi3": Small("Phi3ForCausalLM", GROUPED),
    "llama": Small("LlamaForCausalLM", GROUPED),
    "mistral": Small("MistralForCausalLM", WIDE),
    "ministral": Small("MinistralForCausalLM", WIDE | {"layer_types": ["full_attention"] * 2}),
    "mixtral": Small("MixtralForCausalLM", LOCAL),
    "qwen2": Small("Qwen2ForCausalLM", GROUPED),
    "qwen2_moe": Small("Qwen2MoeForCausalLM", EXPERTS | {"shared_expert_intermediate_size": 28}),
    "qwen3": Small("Qwen3ForCausalLM", WIDE),
    "qwen3_moe": Small("Qwen3MoeForCausalLM", EXPERTS),
    "qwen3_next": Small("Qwen3NextForCausalLM", EXPERTS | HYBRID | {"shared_expert_intermediate_size": 28}),
    "qwen3_5_text": Small("Qwen3_5ForCausalLM", HYBRID),
    "qwen3_5": Small(
        "Qwen3_5ForConditionalGeneration",
        {
            "text_config": HYBRID,
            "vision_config": {"depth": 1, "hidden_size": 24, "num_heads": 4, "intermediate_size": 20}
            | {"out_hidden_size": 24, "patch_size": 4},
        },
    ),
    "qwen3_5_moe_text": Small(
        "Qwen3_5MoeForCausalLM", EXPERTS | HYBRID | {"shared_expert_intermediate_size": 28}
    ),
    "gemma": Small("GemmaForCausalLM", WIDE),
    "gemma2": Small("Gemma2ForCausalLM", GEMMA),
    "gemma3_text": Small("Gemma3ForCausalLM", GEMMA),
    "gemma3": Small(
        "Gemma3ForConditionalGeneration",
        {"text_config": GEMMA, "vision_config": VISION | {"image_size": 28, "patch_size": 14}},
    ),
    "gemma4_text": Small("Gemma4ForCausalLM", GEMMA4),
    "gemma4": Small(
        "Gemma4ForConditionalGeneration",
        {
            "text_config": GEMMA4,
            "vision_config": PLAIN
            | {"num_key_value_heads": 4, "head_dim": 6, "patch_size": 4, "position_embedding_size": 16},
        },
    ),
    "vaultgemma": Small("VaultGemmaForCausalLM", GEMMA),
    "gpt_oss": Small("GptOssForCausalLM", LOCAL),
    "glm": Small("GlmForCausalLM", EVEN),
    "glm4": Small("Glm4ForCausalLM", EVEN),
    "glm4_moe": Small("Glm4MoeForCausalLM", DEEPSEEK | {"num_key_value_heads": 2, "head_dim": 8}),
    "llama4_text": Small("Llama4ForCausalLM", LLAMA4),
    "llama4": Small(
        "Llama4ForConditionalGeneration",
        {
            "text_config": LLAMA4,
            "vision_config": VISION
            | {"vision_output_dim": 24, "projector_input_dim": 24, "projector_output_dim": 24},
        },
    ),
    "granite": Small("GraniteForCausalLM", GROUPED | {"attention_multiplier": 0.7}),
    "granitemoe": Small("GraniteMoeForCausalLM", MOE | {"attention_multiplier": 0.7}),
    "cohere": Small("CohereForCausalLM", GROUPED | {"use_qk_norm": True}),
    "cohere2": Small("Cohere2ForCausalLM", WIDE),
    "stablelm": Small("StableLmForCausalLM", BROAD | {"use_qkv_bias": True}),
    "olmo": Small("OlmoForCausalLM", GROUPED),
    "olmo2": Small("Olmo2ForCausalLM", GROUPED),
    "olmo3": Small("Olmo3ForCausalLM", GROUPED),
    "olmoe": Small("OlmoeForCausalLM", GROUPED | {"num_experts": 3, "num_experts_per_tok": 2}),
    "smollm3": Small("SmolLM3ForCausalLM", GROUPED | {"no_rope_layers": [1, 0]}),
    "starcoder2": Small("Starcoder2ForCausalLM", GROUPED),
    "nemotron": Small("NemotronForCausalLM", BROAD),
    "minimax": Small("MiniMaxForCausalLM", LOCAL | {"layer_types": ["linear_attention", "full_attention"]}),
    "minimax_m2": Small("MiniMaxM2ForCausalLM", LOCAL),
    "deepseek_v2": Small("DeepseekV2ForCausalLM", DEEPSEEK | {"topk_method": "greedy"}),
    "deepseek_v3": Small("DeepseekV3ForCausalLM", DEEPSEEK),
    "dots1": Small("Dots1ForCausalLM", DEEPSEEK | {"num_key_value_heads": 2, "head_dim": 8}),
    "exaone4": Small("Exaone4ForCausalLM", WIDE | {"layer_types": ["sliding_attention", "full_attention"]}),
    "seed_oss": Small("SeedOssForCausalLM", WIDE),
    "helium": Small("HeliumForCausalLM", GROUPED | {"head_dim": 6}),
    "arcee": Small("ArceeForCausalLM", WIDE),
    "apertus": Small("ApertusForCausalLM", EVEN),
    "ernie4_5": Small("Ernie4_5ForCausalLM", EVEN),
    "hunyuan_v1_dense": Small("HunYuanDenseV1ForCausalLM", EVEN),
    "persimmon": Small("PersimmonForCausalLM", BROAD | {"num_key_value_heads": 4}),
    "bitnet": Small("BitNetForCausalLM", GROUPED),
    "cwm": Small("CwmForCausalLM", EVEN),
    # Encoders with decoders.
    "bart": Small("BartForConditionalGeneration", BART, pair),
    "mbart": Small("MBartForConditionalGeneration", BART, pair),
    "mvp": Small("MvpForConditionalGeneration", BART, pair),
    "plbart": Small("PLBartForConditionalGeneration", BART, pair),
    "pegasus": Small("PegasusForConditionalGeneration", BART, pair),
    "m2m_100": Small("M2M100ForConditionalGeneration", BART, pair),
    "marian": Small("MarianMTModel", BART, pair),
    "blenderbot": Small("BlenderbotForConditionalGeneration", BART, pair),
    "blenderbot-small": Small("BlenderbotSmallForConditionalGeneration", BART, pair),
    "led": Small("LEDForConditionalGeneration", BART | {"attention_window": 4}, long_pair),
    "t5": Small("T5ForConditionalGeneration", T5, pair),
    "mt5": Small("MT5ForConditionalGeneration", T5, pair),
    "umt5": Small("UMT5ForConditionalGeneration", T5, pair),
    # Speech.
    "whisper": Small("WhisperForConditionalGeneration", WHISPER, spoken),
    "speech_to_text": Small(
        "Speech2TextForConditionalGeneration",
        WHISPER | {"input_feat_per_channel": 8, "conv_channels": 6, "max_source_positions": 20},
        listened,
    ),
    "wav2vec2": Small("Wav2Vec2Model", SPEECH, sound),
    "hubert": Small("HubertModel", SPEECH, sound),
    "wavlm": Small("WavLMModel", SPEECH, sound),
    "unispeech-sat": Small("UniSpeechSatModel", SPEECH | {"num_codevectors_per_group": 4}, sound),
    "data2vec-audio": Small("Data2VecAudioModel", SPEECH | {"num_conv_pos_embeddings": 2}, sound),
    "unispeech": Small("UniSpeechModel", SPEECH | {"num_codevectors_per_group": 4}, sound),
    # Vision.
    "vit": Small("ViTForImageClassification", VISION, pixels),
    "deit": Small("DeiTForImageClassification", VISION, pixels),
    "vit_mae": Small("ViTMAEModel", VISION | {"mask_ratio": 0.0}, pixels),
    "vit_msn": Small("ViTMSNModel", VISION, pixels),
    "ijepa": Small("IJepaModel", VISION, pixels),
    "yolos": Small("YolosModel", VISION | {"image_size": [8, 8], "num_detection_tokens": 3}, pixels),
    "dinov2": Small("Dinov2Model", DINO, pixels),
    "dinov2_with_registers": Small("Dinov2WithRegistersModel", DINO, pixels),
    "dinov3_vit": Small("DINOv3ViTModel", VISION | {"hidden_size": 32}, pixels),
    "beit": Small("BeitModel", VISION, pixels),
    "videomae": Small("VideoMAEModel", VISION | {"num_frames": 2}, lambda: pixels(frames=2)),
    "audio-spectrogram-transformer": Small(
        "ASTModel",
        VISION | {"num_mel_bins": 8, "max_length": 16, "frequency_stride": 4, "time_stride": 4},
        lambda: {"input_values": torch.randn(1, 16, 8, dtype=torch.float64, generator=torch.manual_seed(3))},
    ),
    # Two towers, and either alone.
    "clip": Small("CLIPModel", TOWERS | {"projection_dim": 10}, both),
    "clip_text_model": Small("CLIPTextModel", TOWERS["text_config"]),
    "clip_vision_model": Small("CLIPVisionModel", VISION, pixels),
    "siglip": Small("SiglipModel", ALIKE, both),
    "siglip_text_model": Small("SiglipTextModel", ALIKE["text_config"]),
    "siglip_vision_model": Small("SiglipVisionModel", VISION, pixels),
    "siglip2": Small(
        "Siglip2Model",
        {"text_config": TOWERS["text_config"], "vision_config": PLAIN | {"patch_size": 4, "num_patches": 4}},
        lambda: {**tokens(), **patches()},
    ),
    "siglip2_text_model": Small("Siglip2TextModel", ALIKE["text_config"]),
    "siglip2_vision_model": Small("Siglip2VisionModel", PLAIN | {"patch_size": 4, "num_patches": 4}, patches),
}


@dataclass(frozen=True)
class Outcome:
    """What became of one type: the error of its scores and heads, or the line it was refused with."""

    name: str
    error: float | None = None
    line: str | None = None


def outcome(name: str, small: Small | None = None) -> Outcome:
    """Build, run, save, open and compare one type; an `AssertionError` where it is read wrongly."""
    small = small or TYPES[name]
    module = make(small.kind, **small.sizes)
    with recording(module, pytest.MonkeyPatch()) as run:
        module(**small.inputs())
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        try:
            model = open_model(folder)
        except InputError as error:
            return Outcome(name, line=str(error).replace(folder, "").lstrip("/"))
        return Outcome(name, check(model, run, SINGLE if name in ROUNDED else TOLERANCE))


def main(names: list[str]) -> int:
    opened = wrong = 0
    for name in names:
        try:
            checked = outcome(name)
        except AssertionError as error:
            wrong += 1
            print(f"{name:<30} WRONG    {str(error).strip().splitlines()[0]}", flush=True)
            continue
        opened += checked.error is not None
        result = f"opened   {checked.error:.0e}" if checked.line is None else f"refused  {checked.line}"
        print(f"{name:<30} {result}", flush=True)
    print(f"\n{opened} of {len(names)} types open ({opened / len(names):.0%}), {wrong} wrongly; ", end="")
    print(f"transformers {transformers.__version__}")
    return int(wrong > 0)


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:] or list(TYPES)))
