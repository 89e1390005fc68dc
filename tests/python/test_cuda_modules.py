"""culet.nn, torch.compile, other libraries' arrays and culet.LLM on a GPU. scripts/gpu-check runs it."""

import os
import threading
import unittest
from importlib import util
from pathlib import Path

os.environ["CULET_CACHE"] = "off"

import culet
from cuda_support import exact, needs_gpu, ran, whole

try:
    import torch
except ImportError:
    torch = None

ADDER = Path(__file__).resolve().parents[2] / "examples/adder"
PROMPT, ANSWER = "481516+42108=", "523624"


def mlp():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 640), torch.nn.SiLU(), torch.nn.Linear(640, 192, bias=False)]
    return torch.nn.Sequential(*layers).to("cuda", torch.bfloat16).requires_grad_(False)


@needs_gpu
class Layers(unittest.TestCase):
    def test_against_double(self):
        from culet import nn as culet_nn
        linear = mlp()[0]
        x = torch.randn(2, 9, 256, device="cuda")
        for kind, bound in ((torch.bfloat16, 4e-3), (torch.float16, 1e-3), (torch.float32, 1e-5)):
            found = culet_nn.LinearBF16.from_linear(linear)(x.to(kind))
            wanted = torch.nn.functional.linear(x.to(kind).double(), linear.weight.double(),
                                                linear.bias.double())
            self.assertEqual((found.dtype, found.shape), (kind, (2, 9, 640)))
            self.assertLess(float((found.double() - wanted).norm() / wanted.norm()), bound)
            found = culet_nn.LinearFP8.from_linear(linear)(x.to(kind))
            self.assertEqual(found.dtype, kind)
            self.assertLess(float((found.double() - wanted).norm() / wanted.norm()), 0.06)
        layer = culet_nn.LinearFP8.from_linear(linear)
        rows = x.to(torch.bfloat16)
        on_cpu = culet_nn.LinearFP8.from_linear(linear.cpu())(rows.cpu())  # the same values and scales
        found = layer(rows).cpu()
        self.assertLess(float((found.double() - on_cpu.double()).norm() / on_cpu.double().norm()), 4e-3)
        self.assertTrue(torch.equal(layer(rows[:, ::2]), layer(rows[:, ::2].contiguous())))
        self.assertEqual(layer(rows[:0]).shape, (0, 9, 640))

    def test_transformers(self):
        if util.find_spec("transformers") is None:
            self.skipTest("no transformers")
        import transformers
        from culet import nn as culet_nn
        config = transformers.Qwen3Config(
            hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=64, vocab_size=512, max_position_embeddings=64)
        torch.manual_seed(0)
        model = transformers.Qwen3ForCausalLM(config).to("cuda", torch.bfloat16).eval()
        ids = torch.arange(10, device="cuda")[None]
        with torch.no_grad():
            wanted = model(ids).logits.double()
            report = culet_nn.patch(model)
            found = model(ids).logits.double()
            text = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
        self.assertEqual((len(report.swapped), text.shape[1]), (14, 14))
        self.assertLess(float((found - wanted).norm() / wanted.norm()), 0.1)


@needs_gpu
class Steps(unittest.TestCase):
    """Layers call after call, which reuse the plan of the first."""

    def setUp(self):
        from culet import nn as culet_nn
        self.linear = mlp()[0]
        self.layers = culet_nn.LinearFP8.from_linear(self.linear), culet_nn.LinearBF16.from_linear(self.linear)
        self.inputs = [whole(*shape, 256, seed=i) for i, shape in enumerate(((1,), (1, 1), (2, 9), (64,), (1,)))]

    def test_again(self):
        for layer in self.layers:
            first = [layer(x) for x in self.inputs]
            for _ in range(3):
                for x, wanted in zip(self.inputs, first):
                    self.assertTrue(torch.equal(layer(x), wanted))
                    wide = torch.nn.functional.linear(x.double(), self.linear.weight.double(), self.linear.bias.double())
                    self.assertLess(float((wanted.double() - wide).norm() / wide.norm()), 0.06)

    def test_the_current_stream(self):
        stream, wanted = torch.cuda.Stream(), self.inputs[0]
        for layer in self.layers:
            right = layer(wanted)
            x = torch.zeros_like(wanted)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(50_000_000)
                x.copy_(wanted)
                found = layer(x)  # on any other stream it would read zeros
            self.assertFalse(stream.query())
            stream.synchronize()
            self.assertTrue(torch.equal(found, right))

    def test_captured(self):
        for layer in self.layers:
            x, graph = self.inputs[0].clone(), torch.cuda.CUDAGraph()
            layer(x)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                found = layer(x)
            for seed in range(3):
                x.copy_(whole(1, 256, seed=seed))
                graph.replay()
                self.assertTrue(torch.equal(found, layer(x)))

    def test_threads_on_one_stream(self):
        layer, wrong = self.layers[0], []

        def work(x, wanted):
            for _ in range(200):
                wrong.append(not torch.equal(layer(x), wanted))

        threads = [threading.Thread(target=work, args=(x, layer(x))) for x in self.inputs[:3]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [False] * 600)


@needs_gpu
class Compiled(unittest.TestCase):
    def setUp(self):
        import culet.nn  # registers the operators

    def check(self, model, inputs, **options):
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, **options)
        with torch.no_grad():
            for x in inputs:
                wanted = model(x).double()
                for _ in range(3):  # warm-up, recorded, replayed
                    found = compiled(x).clone()
                    self.assertLess(float((found.double() - wanted).norm() / wanted.norm()), 2e-2)

    def test_reduce_overhead(self):
        from culet import nn as culet_nn
        inputs = [torch.randn(8, 256, device="cuda").to(torch.bfloat16) for _ in range(2)]
        for format in ("fp8", "bf16"):
            model = mlp()
            culet_nn.patch(model, format)
            with torch.no_grad():
                self.check(model, inputs, mode="reduce-overhead")
        # What was recorded for one input serves another, in memory of its own.
        self.assertIsNotNone(torch.ops.culet.gemm)

    def test_functions(self):
        a, b = whole(16, 256), whole(192, 256, seed=1)

        def steps(a, out):
            y = culet.gemm(a, b, alpha=0.5)
            culet.gemm(a, b, out, c=y, beta=2)
            return out + 1

        torch._dynamo.reset()
        out = torch.empty(16, 192, device="cuda", dtype=torch.bfloat16)
        found = torch.compile(steps, fullgraph=True)(a, out)
        self.assertTrue(torch.equal(found, steps(a, out.clone())))

    def test_operators(self):
        a, b = whole(16, 256), whole(192, 256, seed=1)
        torch.library.opcheck(torch.ops.culet.gemm, (a, b))
        e4m3 = [x.to(torch.float8_e4m3fn) for x in (a, b)]
        scales = torch.ones(16, 2, device="cuda"), torch.ones(2, 2, device="cuda")
        torch.library.opcheck(torch.ops.culet.fp8_gemm_nt, (e4m3[0], scales[0], e4m3[1], scales[1]),
                              test_utils="test_faketensor")  # its other parts compare E4M3 tensors
        self.assertTrue(torch.equal(torch.ops.culet.fp8_gemm_nt(e4m3[0], scales[0], e4m3[1], scales[1]),
                                    exact(a, b)))


class Shown:
    """A tensor's memory through one protocol alone."""

    def __init__(self, tensor, stream=None):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            **tensor.view(torch.float16).__cuda_array_interface__, "stream": stream}


class Capsule:
    def __init__(self, tensor):
        self.tensor, self.streams = tensor, []

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **options)


CUPY = """
import sys
import cupy, culet
a = cupy.random.randint(-2, 3, (16, 512)).astype(cupy.float16)
b = cupy.random.randint(-2, 3, (1024, 512)).astype(cupy.float16)
wanted = (a.astype(cupy.float64) @ b.astype(cupy.float64).T).astype(cupy.float16)
out = culet.gemm(a, b)
assert isinstance(out, cupy.ndarray) and (out == wanted).all()
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    x, y = cupy.zeros_like(a), cupy.empty_like(out)
    step = culet.plan(x, b, y)
    for _ in range(20):
        x[...] = 0
        x += a
        step()
    stream.synchronize()
    assert (y == wanted).all()
    culet.gemm(x, b, y, alpha=2, beta=-1)
    assert (y == wanted).all()
values, scales = culet.quantize_fp8(cupy.ones((4, 256), cupy.uint16) * 0x3F80)
assert values.dtype == cupy.uint8 and (values == 0x7E).all() and (scales == cupy.float32(1 / 448)).all()
odd = culet.gemm(cupy.ones((5, 8200), cupy.float16), cupy.ones((130, 8200), cupy.float16),
                 cupy.empty((5, 130), cupy.float32))
assert (odd == 8200).all()
assert "torch" not in sys.modules
print("right")
"""


@needs_gpu
class OtherArrays(unittest.TestCase):
    def setUp(self):
        self.a, self.b = whole(16, 512, dtype=torch.float16), whole(1024, 512, seed=1, dtype=torch.float16)
        self.out = torch.full((16, 1024), float("nan"), device="cuda", dtype=torch.float16)
        self.wanted = (self.a.double() @ self.b.double().t()).to(torch.float16)
        torch.cuda.synchronize()

    def right(self):
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(self.out, self.wanted))
        self.out.fill_(float("nan"))
        torch.cuda.synchronize()

    def test_the_cuda_array_interface(self):
        culet.gemm(Shown(self.a), Shown(self.b), Shown(self.out))
        self.right()
        culet.plan(Shown(self.a), Shown(self.b), Shown(self.out))()
        self.right()
        culet.gemm(self.a, Shown(self.b), self.out)
        self.right()

    def test_what_its_stream_still_does(self):
        producer, x = torch.cuda.Stream(), torch.zeros_like(self.a)
        for work in (lambda given: culet.gemm(given, self.b, self.out),
                     culet.plan(Shown(x), Shown(self.b), Shown(self.out))):
            x.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(producer):
                torch.cuda._sleep(50_000_000)
                x.copy_(self.a)
            work(Shown(x, producer.cuda_stream))
            self.right()

    def test_the_streams_of_dlpack(self):
        stream = torch.cuda.Stream()
        given = Capsule(self.a)
        culet.gemm(given, Capsule(self.b), Capsule(self.out))
        self.assertEqual(given.streams[-1], 1)  # the default stream's name
        self.right()
        with torch.cuda.stream(stream):
            culet.gemm(given, self.b, self.out)
        self.assertEqual(given.streams[-1], stream.cuda_stream)
        self.right()

    def test_memory_of_the_host(self):
        class Wrong:
            __cuda_array_interface__ = torch.zeros(16, 512, dtype=torch.float16).numpy().__array_interface__
        with self.assertRaisesRegex(culet.InvalidArgument, "no memory of a CUDA device"):
            culet.gemm(Wrong(), self.b, self.out)

    def test_cupy(self):
        if util.find_spec("cupy") is None:
            self.skipTest("no cupy")
        self.assertEqual(ran(CUPY), (0, "right\n"))


@needs_gpu
class Text(unittest.TestCase):
    def test_answers(self):
        llm = culet.LLM(ADDER, device="cuda")
        self.assertEqual(llm.device, "cuda:0")
        self.assertEqual(llm.generate(PROMPT), ANSWER)
        self.assertEqual(list(llm.stream(PROMPT)), list(ANSWER))
        self.assertEqual(llm.generate([PROMPT, "111+222=", "1+1="]), [ANSWER, "333", "2"])
        self.assertEqual(llm.generate(PROMPT, stop="36"), "52")
        self.assertEqual("".join(llm.stream(PROMPT, stop="36")), "52")
        one, two = llm.stream(PROMPT), llm.stream("111+222=")
        found = ["", ""]
        for _ in range(len(ANSWER)):
            found[0] += next(one, "")
            found[1] += next(two, "")
        self.assertEqual(found, [ANSWER, "333"])
        drawn, seeds = {"temperature": 20.0, "max_new_tokens": 4}, range(3, 11)
        alone = [llm.generate(PROMPT, seed=seed, **drawn) for seed in seeds]
        self.assertEqual(alone, ["".join(llm.stream(PROMPT, seed=seed, **drawn)) for seed in seeds])
        self.assertGreater(len(set(alone)), len(seeds) // 2)
        # Values of BF16 are rounded otherwise in a batch, which now and then moves so hot a draw to the next token.
        batch = llm.generate([PROMPT] * len(seeds), seed=seeds[0], **drawn)
        self.assertGreater(sum(one == other for one, other in zip(alone, batch)), len(seeds) // 2)

    def test_beside_torch(self):
        llm = culet.LLM(ADDER, device="cuda")
        a, b = whole(16, 512), whole(1024, 512, seed=1)
        graph, out = torch.cuda.CUDAGraph(), torch.empty(16, 1024, device="cuda", dtype=torch.bfloat16)
        culet.gemm(a, b, out)
        self.assertEqual(llm.generate(PROMPT), ANSWER)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            culet.gemm(a, b, out)
        out.zero_()
        self.assertEqual(llm.generate(PROMPT), ANSWER)
        graph.replay()
        self.assertTrue(torch.equal(out, exact(a, b)))


if __name__ == "__main__":
    unittest.main()
