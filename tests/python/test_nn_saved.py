"""A patched transformers model that is saved, and read again by transformers and by culet.LLM."""

import copy
import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

os.environ["CULET_CACHE"] = "off"

try:
    import torch
    import transformers
    import accelerate  # noqa: F401  which transformers wants for FP8
except ImportError as error:
    raise unittest.SkipTest(f"no torch, transformers or accelerate: {error}") from error

import culet
import culet.nn

PROMPT = [3, 14, 15, 92, 65, 35]
SIZES = {"vocab_size": 256, "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "eos_token_id": None,
         "bos_token_id": None, "pad_token_id": None}


class Saved(unittest.TestCase):
    def made(self, kind, **options):
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**{**SIZES, **options})
        return getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()

    def folder(self):
        path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, path)
        return path

    def logits(self, model):
        with torch.no_grad():
            return model(torch.tensor([PROMPT])).logits.float()

    def check(self, model, **options):
        """The folder of the saved model."""
        original = self.logits(model)
        report = culet.nn.patch(model, **options)
        self.assertGreater(len(report.swapped), 0)
        wanted, folder = self.logits(model), self.folder()
        model.save_pretrained(folder)
        again, loading = type(model).from_pretrained(folder, output_loading_info=True)
        for wrong in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(loading[wrong], wrong)
        found = self.logits(again)
        near = 0.3 if options.get("format") == "u4" else 0.1
        for name, other, bound in (("patched", wanted, 0.1), ("original", original, near)):
            self.assertLess(float((found - other).norm() / other.norm()), bound, name)
        with torch.no_grad():
            tokens = model.generate(torch.tensor([PROMPT]), max_new_tokens=1, do_sample=False, pad_token_id=0)[0]
        stream = culet.LLM(folder, device="cpu").stream(PROMPT, max_new_tokens=1)
        list(stream)
        # The patched model rounds to BF16 between its layers: the two likeliest may change places.
        near = set(wanted[0, -1].topk(3).indices.tolist())
        self.assertIn(stream.tokens[0], near | {int(tokens[-1])})
        return Path(folder)

    def config(self, folder):
        return json.loads((folder / "config.json").read_text())

    def test_models(self):
        for kind, options in (("Llama", {}), ("Qwen2", {}), ("Qwen3", {"head_dim": 64}), ("Mistral", {}),
                              ("Llama", {"tie_word_embeddings": True})):
            with self.subTest(kind=kind, **options):
                folder = self.check(self.made(kind, **options))
                found = self.config(folder)["quantization_config"]
                self.assertEqual(found["modules_to_not_convert"], ["lm_head"])
                self.assertEqual((found["quant_method"], found["weight_block_size"]), ("fp8", [128, 128]))

    def test_what_is_left(self):
        for options in ({"keep": ["lm_head", "*.q_proj", "model.layers.1.*"]}, {"keep": ["lm_head", "*.down_proj"]}):
            with self.subTest(**options):
                self.check(self.made("Llama"), **options)

    def test_the_last_layer(self):
        for tied in (False, True):
            with self.subTest(tied=tied):
                folder = self.check(self.made("Llama", tie_word_embeddings=tied), keep=())
                self.assertEqual(self.config(folder)["quantization_config"]["modules_to_not_convert"], [])
                self.assertFalse(self.config(folder)["tie_word_embeddings"])

    def test_experts(self):
        folder = self.check(self.made("Qwen3Moe", head_dim=64, num_experts=4, num_experts_per_tok=2,
                                      moe_intermediate_size=128, decoder_sparse_step=1, mlp_only_layers=[],
                                      norm_topk_prob=True))
        self.assertIn("model.layers.0.mlp.experts", self.config(folder)["quantization_config"]["modules_to_not_convert"])

    def test_a_part_of_a_model(self):
        model = self.made("Llama")
        wanted = self.logits(model)
        culet.nn.patch(model.model)
        folder = self.folder()
        model.save_pretrained(folder)
        found = self.logits(type(model).from_pretrained(folder))
        self.assertLess(float((found - wanted).norm() / wanted.norm()), 0.1)

    def test_four_bits(self):
        try:
            import compressed_tensors  # noqa: F401  which transformers wants for them
        except ImportError as error:
            self.skipTest(f"no compressed_tensors: {error}")
        for options in ({}, {"group_size": 32, "keep": ["lm_head", "*.o_proj"]}, {"keep": ()}):
            with self.subTest(**options):
                folder = self.check(self.made("Llama"), format="u4", **options)
                found = self.config(folder)["quantization_config"]
                weights = found["config_groups"]["group_0"]["weights"]
                self.assertEqual((found["format"], weights["group_size"], weights["symmetric"]),
                                 ("pack-quantized", options.get("group_size", 128), True))

    def test_zero_points(self):
        """transformers 5.24 with compressed-tensors 0.20 loads no zero points, not even those that it saved itself: the
        latter alone unpacks them here."""
        try:
            from compressed_tensors.compressors import PackedQuantizationCompressor
            from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        except ImportError as error:
            self.skipTest(f"no compressed_tensors: {error}")
        model = self.made("Llama")
        original = copy.deepcopy(model.model.layers[1].mlp.down_proj.weight)
        culet.nn.patch(model, "u4", symmetric=False)
        layer, folder = model.model.layers[1].mlp.down_proj, self.folder()
        weights = model.config.quantization_config["config_groups"]["group_0"]["weights"]
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
        found = PackedQuantizationCompressor.decompress(layer.state_dict(), scheme)["weight"]
        self.assertLess(float((found - original).detach().norm() / original.detach().norm()), 0.12)
        x = torch.eye(original.shape[1])
        self.assertTrue(torch.allclose(layer(x).T, found.float(), rtol=2.0**-8, atol=0))
        model.save_pretrained(folder)
        with torch.no_grad():
            tokens = model(torch.tensor([PROMPT])).logits[0, -1].topk(3).indices.tolist()
        stream = culet.LLM(folder, device="cpu").stream(PROMPT, max_new_tokens=1)
        list(stream)
        self.assertIn(stream.tokens[0], tokens)

    def test_four_bits_as_the_library_rounds(self):
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            self.skipTest(f"no safetensors: {error}")
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            model = self.made("Qwen2").to(dtype)
            for format, symmetric in (("u4", True), ("u4-asymmetric", False)):
                plain, out, patched = self.folder(), self.folder(), copy.deepcopy(model)
                model.save_pretrained(plain)
                culet.quantize_checkpoint(plain, out, format)
                culet.nn.patch(patched, "u4", symmetric=symmetric)
                wanted = patched.state_dict()
                found = load_file(Path(out) / "model.safetensors")
                self.assertEqual(set(found), set(wanted))
                for name, tensor in found.items():
                    self.assertTrue(torch.equal(tensor, wanted[name]), f"{name}, {dtype}")

    def test_one_config_for_one_scheme(self):
        model = self.made("Llama")
        culet.nn.patch(model, keep=["lm_head", "*.o_proj"])
        with self.assertRaisesRegex(culet.InvalidArgument, "has a LinearFP8.* already, model.layers.0.self_attn.q_proj"):
            culet.nn.patch(model, "u4")
        model = self.made("Llama")
        culet.nn.patch(model, "u4", keep=["lm_head", "*.o_proj"])
        for format, options in (("fp8", {}), ("u4", {"group_size": 64}), ("u4", {"symmetric": False})):
            with self.assertRaisesRegex(culet.InvalidArgument, "has a LinearW4.in_features=256.* already"):
                culet.nn.patch(model, format, **options)
        self.assertEqual(len(culet.nn.patch(model, "u4").swapped), 2)

    def test_no_fp8_no_config(self):
        model = self.made("Llama")
        culet.nn.patch(model, "bf16")
        self.assertFalse(hasattr(model.config, "quantization_config"))
        culet.nn.patch(torch.nn.Sequential(torch.nn.Linear(128, 128)))  # no config at all


if __name__ == "__main__":
    unittest.main()
