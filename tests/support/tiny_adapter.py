"""LoRA adapters for the tiny model: seeded weights, large enough to change what is generated."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from support.tiny_model import HIDDEN, LAYERS

RANK = 8


def tiny_adapter(folder: Path, seed: int) -> Path:
    """Writes an adapter of the query projections into the folder and returns it."""
    rng = np.random.default_rng(seed)
    weights = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = rng.standard_normal((RANK, HIDDEN)).astype(np.float32)
        weights[f"{name}.lora_B.weight"] = rng.standard_normal((HIDDEN, RANK)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder
