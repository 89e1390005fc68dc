#!/usr/bin/env python3
"""Writes config_keys.json: the keys that transformers' own classes of the supported architectures give
a config.json, with their defaults, and the keys of generation that these classes drop.

    pip install transformers
    python3 make_config_keys.py"""

import json
from pathlib import Path

import transformers
from transformers import GenerationConfig

# Of text models; each is the XConfig of an XForCausalLM.
CLASSES = ("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe", "Qwen2Moe", "Qwen3Next", "Phi3", "Gemma2",
           "Olmo2", "Olmo3", "SmolLM3", "SeedOss", "Granite", "Glm4", "Glm4Moe", "Ernie4_5", "Ernie4_5_Moe",
           "MiniMaxM2", "GptOss", "Ministral3", "Cohere", "Cohere2", "DeepseekV2", "DeepseekV3")
# What a class has no usable default for.
GIVEN = {"DeepseekV2ForCausalLM": {"num_experts_per_tok": 6}, "Glm4MoeForCausalLM": {"head_dim": 128}}
TEXTS = {"Gemma3ForCausalLM": "Gemma3TextConfig", "Llama4ForCausalLM": "Llama4TextConfig"}

if __name__ == "__main__":
    names = {f"{name}ForCausalLM": f"{name}Config" for name in CLASSES} | TEXTS
    configs = {name: {key: value for key, value in getattr(transformers, made)(**GIVEN.get(name, {})).to_dict().items()
                      if key not in ("id2label", "label2id")} | {"id2label": {}, "label2id": {}}
               for name, made in names.items()}
    document = {"transformers": transformers.__version__, "configs": configs,
                "generation": sorted(GenerationConfig._get_default_generation_params())}
    Path(__file__).with_name("config_keys.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
