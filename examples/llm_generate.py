"""Text in, text out: a checkpoint's folder continues a prompt, whole and as a stream. Without an
argument it is the model in examples/adder, which learnt to add and needs no other package; others
need `pip install culet[text]`.

    python examples/llm_generate.py [FOLDER [PROMPT]]"""

import sys
from pathlib import Path

import culet

folder = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "adder"
prompt = sys.argv[2] if len(sys.argv) > 2 else "481516+42108="

llm = culet.LLM(folder)
print(llm)
print(prompt + llm.generate(prompt, max_new_tokens=64))

print(prompt, end="")
stream = llm.stream(prompt, max_new_tokens=64, temperature=0.7, top_p=0.9, seed=1)
for piece in stream:
    print(piece, end="", flush=True)
print(f"\n{len(stream.tokens)} tokens, ended by {stream.finish_reason}")
