"""Turns a GGUF file of a small Llama into the folder that vLLM loads: `convert_gguf.py FILE FOLDER`.

Run by the interpreter of the vLLM environment (`environment.py` does so), never imported by this
package: it needs torch, transformers, safetensors and gguf. transformers 5.19 itself keeps such
weights packed and refuses to save them. Only the Llama architecture is known, which SmolLM2 is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Foreign imports that exist in the other interpreter only.
import torch  # type: ignore[import-not-found]
from gguf import GGUFReader  # type: ignore[import-not-found]
from gguf.quants import dequantize  # type: ignore[import-not-found]
from safetensors.torch import save_file  # type: ignore[import-not-found]
from transformers import AutoTokenizer  # type: ignore[import-not-found]

OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main(source: Path, target: Path) -> None:
    """Write `target` from `source`."""
    reader = GGUFReader(source)
    config = config_of(reader)
    weights = dict(named(tensor, config) for tensor in reader.tensors if known(tensor.name))
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    target.mkdir(parents=True, exist_ok=True)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(target)
    write_json(target / "generation_config.json", generation_of(tokenizer))
    write_json(target / "config.json", config)


def config_of(reader: Any) -> dict[str, Any]:
    """Return the model's configuration in the words of transformers."""

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    if value("general.architecture") != "llama":
        raise SystemExit(f"the model is a {value('general.architecture')}, must be a llama")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": value("llama.embedding_length"),
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": value("llama.attention.head_count"),
        "num_key_value_heads": value("llama.attention.head_count_kv"),
        "max_position_embeddings": value("llama.context_length"),
        "rms_norm_eps": float(value("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(value("llama.rope.freq_base")),
        "vocab_size": len(value("tokenizer.ggml.tokens")),
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "bfloat16",
    }


def known(name: str) -> bool:
    """Say whether a tensor is a weight; the table of rotary frequencies is computed anew."""
    return not name.startswith("rope_freqs")


def named(tensor: Any, config: dict[str, Any]) -> tuple[str, Any]:
    """Return a tensor's name in transformers, and its weights."""
    weights = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
    stem = tensor.name.removesuffix(".weight")
    if stem in OUTER:
        return f"{OUTER[stem]}.weight", weights.to(torch.bfloat16)
    _, layer, part = stem.split(".")
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    if part in heads:
        weights = unpaired(weights, config[heads[part]])
    return f"model.layers.{layer}.{IN_BLOCK[part]}.weight", weights.to(torch.bfloat16)


def unpaired(weights: Any, heads: int) -> Any:
    """Undo llama.cpp's order of rows: it keeps the two halves of a rotation side by side."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def generation_of(tokenizer: Any) -> dict[str, Any]:
    """Return where generation begins and ends."""
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    return {"bos_token_id": tokenizer.bos_token_id, **ends}


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
