"""A tiny Llama model that vLLM loads as it loads any other: weights, byte-level BPE tokenizer, chat template.

It is generated, the same bytes each time, in under a second, and kept in the cache folder. Greedy decoding never picks
the end token (its row of the output matrix is zero), so a call ends exactly at its ``max_tokens``.

``python -m support.tiny_model`` (with ``tests`` on the path) prints the folder of the model.
"""

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS = 2
HIDDEN = 128
HEAD_DIM = 64
HEADS = HIDDEN // HEAD_DIM
INTERMEDIATE = 2 * HIDDEN
VOCABULARY = 2048
CONTEXT = 8192  # tokens

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model() -> Path:
    """The folder of the model; makes it on the first use. Safe when several processes ask at once."""
    folder = _cache_folder() / f"tiny-model-{_generator_hash()}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".tiny-model-", dir=folder.parent))
    try:
        _generate(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, and its bytes are the same
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "autellix"


def _generator_hash() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def _generate(folder: Path) -> None:
    tokenizer = _tokenizer()
    vocabulary = tokenizer.get_vocab()
    end, pad = vocabulary[END], vocabulary[PAD]
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "eos_token": END,
            "pad_token": PAD,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HEAD_DIM,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "vocab_size": VOCABULARY,
            "torch_dtype": "bfloat16",
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": pad,
        },
    )
    _write_json(folder / "generation_config.json", {"eos_token_id": end, "pad_token_id": pad})
    save_file(dict(_weights(end)), folder / "model.safetensors", metadata={"format": "pt"})
    # Temporary folders and safetensors files are private to their owner; a pod runs as another user.
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _tokenizer() -> Tokenizer:
    chance = random.Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(4000)]
    sentences = (" ".join(chance.choices(words, k=20)) for _ in range(4000))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def _weights(end_token: int) -> Iterator[tuple[str, npt.NDArray[np.float16]]]:
    chance = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float16]:
        normal = chance.standard_normal((rows, columns), dtype=np.float32)
        scaled: npt.NDArray[np.float16] = (normal / np.sqrt(np.float32(columns))).astype(np.float16)
        return scaled

    ones = np.ones(HIDDEN, np.float16)
    yield "model.embed_tokens.weight", matrix(VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", ones
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"{prefix}.self_attn.{name}.weight", matrix(HIDDEN, HIDDEN)
        yield f"{prefix}.post_attention_layernorm.weight", ones
        for name in ("gate_proj", "up_proj"):
            yield f"{prefix}.mlp.{name}.weight", matrix(INTERMEDIATE, HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", matrix(HIDDEN, INTERMEDIATE)
    yield "model.norm.weight", ones
    head = matrix(VOCABULARY, HIDDEN)
    head[end_token] = 0
    yield "lm_head.weight", head


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    print(tiny_model())
