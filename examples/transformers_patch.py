"""A transformers model on culet's FP8 products: patch swaps its Linears and says what it left. Needs
torch and transformers; the model is a small one with random weights."""

import torch
import transformers

import culet.nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
config = transformers.LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=512, max_position_embeddings=128)
model = transformers.LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
prompt = torch.arange(1, 9, device=device)[None]

with torch.no_grad():
    before = model(prompt).logits.float()
    print(culet.nn.patch(model))
    after = model(prompt).logits.float()
    text = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
error = (after - before).norm() / before.norm()
print(f"relative change of the logits: {error:.3f}")
print(f"tokens: {text[0, prompt.shape[1]:].tolist()}")
assert error < 0.1
