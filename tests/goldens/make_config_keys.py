#!/usr/bin/env python3
"""Writes config_keys.json: the keys that transformers' own classes of the supported architectures give
a config.json, with their defaults, and the keys of generation that these classes drop.

    pip install transformers
    python3 make_config_keys.py"""

import json
from pathlib import Path

import transformers
from transformers import (GenerationConfig, LlamaConfig, MistralConfig, MixtralConfig, Qwen2Config, Qwen3Config,
                          Qwen3MoeConfig)

CLASSES = {"LlamaForCausalLM": LlamaConfig, "MistralForCausalLM": MistralConfig,
           "MixtralForCausalLM": MixtralConfig, "Qwen2ForCausalLM": Qwen2Config,
           "Qwen3ForCausalLM": Qwen3Config, "Qwen3MoeForCausalLM": Qwen3MoeConfig}

if __name__ == "__main__":
    configs = {name: {key: value for key, value in made().to_dict().items()
                      if key not in ("id2label", "label2id")} | {"id2label": {}, "label2id": {}}
               for name, made in CLASSES.items()}
    document = {"transformers": transformers.__version__, "configs": configs,
                "generation": sorted(GenerationConfig._get_default_generation_params())}
    Path(__file__).with_name("config_keys.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
