"""CUDA tensors in gemm, plan, quantize_fp8, pack, culet.deep_gemm: results, streams, captures, lifetimes,
what is refused. scripts/gpu-check runs it on a GPU."""

import gc
import os
import tempfile
import threading
import unittest

os.environ["CULET_CACHE"] = "off"

import culet
from cuda_support import exact, needs_gpu, ran, whole

try:
    import torch
except ImportError:
    torch = None


@needs_gpu
class Products(unittest.TestCase):
    def test_types(self):
        for m, n, k in ((1, 1, 1), (3, 130, 72), (64, 256, 512), (300, 128, 640)):
            a, b, bias = whole(m, k), whole(n, k, seed=1), whole(n, seed=2)
            wanted = a.double() @ b.double().t()
            for kind in (torch.bfloat16, torch.float16, torch.float32):
                with self.subTest(m=m, n=n, k=k, kind=kind):
                    out = culet.gemm(a.to(kind), b.to(kind))
                    self.assertEqual((out.dtype, out.device.type), (kind, "cuda"))
                    self.assertTrue(torch.equal(out, wanted.to(kind)))
                    out = culet.gemm(a.to(kind), b.to(kind), bias=bias.to(kind), alpha=0.5,
                                     out_dtype=torch.float32)
                    self.assertTrue(torch.equal(out, (0.5 * wanted + bias.double()).float()))
            e4m3 = [x.to(torch.float8_e4m3fn) for x in (a, b)]
            u, v = torch.full((m,), 2.0, device="cuda"), torch.full((n,), 0.5, device="cuda")
            self.assertTrue(torch.equal(culet.gemm(*e4m3, a_scale=u, b_scale=v), wanted.to(torch.bfloat16)))
            self.assertTrue(torch.equal(culet.gemm(*e4m3, a_scale=2.0, b_scale=0.5, accumulate="fast"),
                                        wanted.to(torch.bfloat16)))

    def test_batches_and_gates(self):
        a, b = whole(3, 5, 64), whole(3, 48, 64, seed=1)
        try:
            self.assertTrue(torch.equal(culet.gemm(a, b), torch.stack([exact(*x) for x in zip(a, b)])))
        except culet.Error as error:  # with each kernel's reason
            self.assertEqual(error.status, "UNSUPPORTED")
            self.assertIn("takes one matrix, no batch", str(error))
        x = a[0].double() @ b[0].double().t()
        gate, up = (x.view(5, 3, 2, 8)[:, :, i].reshape(5, 24) for i in (0, 1))
        wanted = torch.nn.functional.silu(gate) * up
        out = culet.gemm(a[0], b[0], epilogue="gated_silu")
        self.assertLess(float((out.double() - wanted).norm() / wanted.norm()), 4e-3)

    def test_strided_and_misaligned(self):
        for offset in (0, 1, 3, 8):
            store = whole(40, 200), whole(130, 200, seed=1)
            a, b = (x[:, offset:offset + 136] for x in store)
            out = torch.full((42, 150), float("nan"), device="cuda", dtype=torch.bfloat16)
            culet.gemm(a, b, out[1:41, offset:offset + 130])
            self.assertTrue(torch.equal(out[1:41, offset:offset + 130], exact(a, b)), offset)
            self.assertEqual(int(out.isnan().sum()), 42 * 150 - 40 * 130)
        a, b = whole(64, 40).t(), whole(96, 64, seed=1)  # columns of a
        self.assertTrue(torch.equal(culet.gemm(a, b), exact(a, b)))
        out = torch.empty(96, 40, device="cuda", dtype=torch.bfloat16).t()
        culet.gemm(a, b, out)
        self.assertTrue(torch.equal(out, exact(a, b)))
        with self.assertRaisesRegex(culet.InvalidArgument, "a of shape .* must be contiguous"):
            culet.gemm(whole(8, 128)[:, ::2], b)

    def test_what_is_on_another_device(self):
        a, b, out = whole(4, 64), whole(96, 64, seed=1), torch.empty(4, 96, device="cuda", dtype=torch.bfloat16)
        for words, operands, options in (
                ("b is on the CPU, a is on cuda:0", (a, b.cpu(), out), {}),
                ("b is on cuda:0, a is on the CPU", (a.cpu(), b, out.cpu()), {}),
                ("out is on the CPU", (a, b, out.cpu()), {}),
                ("a_scale is on the CPU", (a, b, out), {"a_scale": torch.ones(4)}),
                ("bias is on the CPU", (a, b, out), {"bias": whole(96).cpu()}),
                ("a is on meta|A is null", (a.to("meta"), b, out), {})):
            for function in (culet.gemm, culet.plan):
                with self.subTest(words=words), self.assertRaisesRegex(culet.InvalidArgument, words):
                    function(*operands, **options)
        step = culet.plan(a, b, out)
        with self.assertRaisesRegex(culet.InvalidArgument, "on the CPU, but the plan was made for .*cuda:0"):
            step(a.cpu())
        if torch.cuda.device_count() > 1:
            with self.assertRaisesRegex(culet.InvalidArgument, "b is on cuda:1, a is on cuda:0"):
                culet.gemm(a, b.to("cuda:1"), out)
            a, b = a.to("cuda:1"), b.to("cuda:1")
            self.assertTrue(torch.equal(culet.gemm(a, b), exact(a, b)))
            step = culet.plan(a, b, out.to("cuda:1"))
            self.assertTrue(torch.equal(step(), exact(a, b)))
            for found, wanted in zip(culet.quantize_fp8(a), culet.quantize_fp8(a.to("cuda:0"))):
                self.assertTrue(torch.equal(found.cpu().view(torch.uint8), wanted.cpu().view(torch.uint8)))

    def test_packed(self):
        a, b = whole(8, 256), whole(192, 256, seed=1)
        try:
            packed = culet.pack(b)
        except culet.Error as error:
            self.assertEqual(error.status, "UNSUPPORTED")  # and its sentence says what to do
            self.assertIn("pack", str(error))
            return
        self.assertTrue(torch.equal(culet.gemm(a, packed), exact(a, b)))

    def test_zero_points_are_refused_with_reasons(self):
        a, b = (whole(4, 128, seed=i).to(torch.float8_e4m3fn) for i in (0, 1))
        ones = torch.ones(4, device="cuda")
        with self.assertRaisesRegex(culet.Error, "zero point"):
            culet.gemm(a, b, a_scale=ones, b_scale=ones, b_zero=ones)


@needs_gpu
class Quantised(unittest.TestCase):
    def test_bits_of_the_cpus(self):
        for m, k in ((1, 128), (7, 200), (300, 1024)):
            x = torch.randn(m, k, generator=torch.Generator().manual_seed(m)).to(torch.bfloat16)
            found, wanted = culet.quantize_fp8(x.cuda()), culet.quantize_fp8(x)
            for one, other in zip(found, wanted):
                self.assertTrue(torch.equal(one.cpu().view(torch.uint8), other.view(torch.uint8)))
        with self.assertRaises(culet.Error) as caught:
            culet.quantize_fp8(x.cuda(), "tensor")
        self.assertEqual(caught.exception.status, "UNSUPPORTED")
        self.assertEqual(culet.quantize_fp8(x.cuda()[:0])[1].shape, (0, 8))

    def test_stream_and_capture(self):
        x, stream = torch.zeros(64, 4096, device="cuda", dtype=torch.bfloat16), torch.cuda.Stream()
        out = culet.quantize_fp8(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.fill_(448)
            culet.quantize_fp8(x, out=out)
        stream.synchronize()
        self.assertTrue((out[0].float() == 448).all() and (out[1] == 1).all())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            culet.quantize_fp8(x, out=out)
        x.fill_(896)
        graph.replay()
        self.assertTrue((out[1] == 2).all())


@needs_gpu
class Plans(unittest.TestCase):
    def setUp(self):
        self.a, self.b = whole(16, 512), whole(1024, 512, seed=1)
        self.out = torch.full((16, 1024), float("nan"), device="cuda", dtype=torch.bfloat16)

    def test_launches(self):
        step = culet.plan(self.a, self.b, self.out)
        self.assertTrue(self.out.isnan().all())
        self.assertIs(step(), self.out)
        self.assertTrue(torch.equal(self.out, exact(self.a, self.b)))
        other, out = whole(16, 512, seed=3), torch.empty_like(self.out)
        step(other, out)
        self.assertTrue(torch.equal(out, exact(other, self.b)))

    def test_the_current_stream(self):
        step = culet.plan(self.a, self.b, self.out)
        a, stream = torch.zeros_like(self.a), torch.cuda.Stream()
        torch.cuda.synchronize()
        for launch in (lambda: step(a), lambda: culet.gemm(a, self.b, self.out)):
            a.zero_()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(50_000_000)
                a.copy_(self.a)
                launch()  # on any other stream it would read zeros
            self.assertFalse(stream.query())
            stream.synchronize()
            self.assertTrue(torch.equal(self.out, exact(self.a, self.b)))

    def test_captured(self):
        step, graph = culet.plan(self.a, self.b, self.out), torch.cuda.CUDAGraph()
        step()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            step()
        step.close()  # a graph does not need it
        del step
        gc.collect()
        for seed in range(3):
            self.a.copy_(whole(16, 512, seed=seed))
            graph.replay()
            self.assertTrue(torch.equal(self.out, exact(self.a, self.b)))

    def test_in_a_capture(self):
        for tuning in (False, True):
            with self.assertRaisesRegex(culet.Error, "once before the capture"):
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    if tuning:
                        with culet.autotune(budget=1):
                            culet.plan(self.a, self.b, self.out)
                    else:
                        culet.plan(self.a, self.b, self.out)
            torch.cuda.synchronize()
        culet.plan(self.a, self.b, self.out)()
        self.assertTrue(torch.equal(self.out, exact(self.a, self.b)))

    def test_tensors_that_are_freed(self):
        wanted = exact(self.a, self.b)
        step = culet.plan(self.a, self.b, self.out)
        shape = self.b.shape
        self.a = self.b = None
        torch.cuda.empty_cache()
        rubbish = [torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(64)]
        step()
        self.assertTrue(torch.equal(self.out, wanted))
        del rubbish
        # gemm's plans keep no tensors: what comes to lie where a weight was is taken as it is.
        for seed in range(20):
            a, b = whole(16, 512, seed=seed), whole(1024, 512, seed=seed + 1)
            self.assertTrue(torch.equal(culet.gemm(a, b), exact(a, b)))

    def test_threads(self):
        step, failures = culet.plan(self.a, self.b, self.out), []

        def work(seed):
            a = whole(16, 512, seed=seed)
            wanted, out = exact(a, self.b), torch.empty_like(self.out)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                for _ in range(200):
                    out.fill_(float("nan"))
                    step(a, out)
            stream.synchronize()
            failures.append(not torch.equal(out, wanted))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [False] * 2)

    def test_tuned_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.jsonl")
            with culet.autotune(budget=5) as tuning:
                step = culet.plan(self.a, self.b, self.out)
            self.assertGreater(tuning.results[0].measurements, 0)
            self.assertTrue(torch.equal(step(), exact(self.a, self.b)))
            culet.save_cache(path, device="cuda")
            self.assertGreater(culet.load_cache(path, device="cuda")["used"], 0)


@needs_gpu
class DeepGemm(unittest.TestCase):
    def test_forms(self):
        from culet import deep_gemm
        for m, n, k in ((4, 130, 200), (64, 512, 1024), (300, 256, 384)):
            x, w = (torch.randn(rows, k, device="cuda").to(torch.bfloat16) for rows in (m, n))
            a, b = deep_gemm.per_token_cast_to_fp8(x, False), deep_gemm.per_block_cast_to_fp8(w, False)
            of_a = a[0].double() * a[1].double().repeat_interleave(128, 1)[:, :k]
            of_b = b[0].double() * b[1].double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
            aligned = a[0], deep_gemm.get_mn_major_tma_aligned_tensor(a[1])
            turned = tuple(value.t() for value in a), tuple(value.t() for value in b)
            calls = {"nt": (a, b), "nn": (a, turned[1]), "tn": turned,
                     "tt": (turned[0], b)}
            for form, operands in (*calls.items(), ("nt", (aligned, b))):
                d = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
                getattr(deep_gemm, f"fp8_gemm_{form}")(*operands, d)
                self.assertLess(float(deep_gemm.calc_diff(d, of_a @ of_b.t())), 1e-4, (form, m))
            for form, operands in (("nt", (x, w)), ("nn", (x, w.t().contiguous())),
                                   ("tn", (x.t().contiguous(), w.t().contiguous())),
                                   ("tt", (x.t().contiguous(), w))):
                d = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float32)
                getattr(deep_gemm, f"bf16_gemm_{form}")(*operands, d)
                self.assertLess(float(deep_gemm.calc_diff(d, x.double() @ w.double().t())), 1e-6, (form, m))
        c = torch.randn(m, n, device="cuda").to(torch.bfloat16)
        d = c.clone()
        deep_gemm.fp8_gemm_nt(a, b, d, c=d)
        self.assertLess(float(deep_gemm.calc_diff(d, of_a @ of_b.t() + c.double())), 1e-4)

    def test_the_gradient_of_a_weight(self):
        """The recipe (1, 1, 128): FP32 sums go on in FP32."""
        from culet import deep_gemm
        for m, n, k in ((16, 64, 256), (200, 136, 1000), (5, 3, 130)):
            pairs = [deep_gemm.per_token_cast_to_fp8(torch.randn(rows, k, device="cuda"), False) for rows in (m, n)]
            of_a, of_b = (values.double() * scales.double().repeat_interleave(128, 1)[:, :k] for values, scales in pairs)
            out = torch.randn(m, n, device="cuda") * 10
            wanted = out.double() + of_a @ of_b.t()
            deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt(*pairs, out)
            self.assertLess(float(deep_gemm.calc_diff(out, wanted)), 1e-6, (m, n, k))

    def test_settings(self):
        from culet import deep_gemm
        a, b = whole(16, 512), whole(1024, 512, seed=1)
        every, out = deep_gemm.get_num_sms(), torch.empty(16, 1024, device="cuda", dtype=torch.bfloat16)
        self.addCleanup(deep_gemm.set_num_sms, every)
        self.addCleanup(deep_gemm.set_pdl, False)
        for count in (every // 2, every):
            for pdl in (False, True):
                deep_gemm.set_num_sms(count)
                deep_gemm.set_pdl(pdl)
                deep_gemm.bf16_gemm_nt(a, b, out.fill_(float("nan")))
                self.assertTrue(torch.equal(out, exact(a, b)))
        with self.assertRaisesRegex(culet.InvalidArgument, "the device has"):
            deep_gemm.set_num_sms(every + 1)


FIRST_IN_A_CAPTURE = """
import torch, culet
from cuda_support import exact, whole
a, b = whole(16, 512), whole(1024, 512, seed=1)
out = torch.empty(16, 1024, device="cuda", dtype=torch.bfloat16)
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        culet.gemm(a, b, out)
except culet.Error as error:
    print(error.status)
torch.cuda.synchronize()
culet.gemm(a, b, out)
print(torch.equal(out, exact(a, b)))
"""

FORKED = """
import os, sys
import torch, culet
before = sys.argv[1] == "before"  # CUDA was used; cuda_support would use it at once

def whole(rows, columns, device="cuda", seed=0):
    torch.manual_seed(seed)
    return torch.randint(-2, 3, (rows, columns)).to(device, torch.bfloat16)

def exact(a, b):
    return (a.double() @ b.double().t()).to(torch.bfloat16)

if not before:
    a = whole(4, 64)
    culet.gemm(a, a)
    torch.cuda.synchronize()
x = whole(4, 64, device="cpu")
assert torch.equal(culet.gemm(x, x), exact(x, x))
child = os.fork()
if child == 0:
    right = False
    try:
        device = "cuda" if before else "cpu"  # a CUDA context does not outlive a fork
        a, b = whole(16, 512, device=device), whole(64, 512, seed=1, device=device)
        right = torch.equal(culet.gemm(a, b), exact(a, b))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    if not before:
        try:
            culet.gemm(whole(4, 64), whole(4, 64))
            right = False
        except RuntimeError:
            pass
    sys.stdout.flush()
    os._exit(0 if right else 3)
status = os.waitpid(child, 0)[1]
a, b = whole(16, 512), whole(64, 512, seed=1)
print(status, torch.equal(culet.gemm(a, b), exact(a, b)))
"""

PENDING = """
import ctypes, re
import torch, culet
from cuda_support import exact, whole
a, b = whole(16, 512), whole(64, 512, seed=1)
torch.cuda.synchronize()
path = re.search(r"\\S*libcudart\\S*so\\S*", open("/proc/self/maps").read())[0]
runtime = ctypes.CDLL(path)
assert runtime.cudaSetDevice(99) == 101
out = torch.empty(16, 64, device="cuda", dtype=torch.bfloat16)
pending = runtime.cudaPeekAtLastError()
culet.gemm(a, b, out)
step = culet.plan(a, b, out)
step()
with culet.autotune(budget=1):
    culet.gemm(b, a)
print(pending, runtime.cudaGetLastError(), torch.equal(out, exact(a, b)))
"""

CONTEXTS = """
import torch, culet
from cuda_support import whole
bad = torch.zeros(4, device="cuda")
try:
    bad[torch.tensor([10**9], device="cuda")]
    torch.cuda.synchronize()
except Exception as error:
    pass
try:
    a = torch.empty(4, 64, device="cuda", dtype=torch.bfloat16)
    culet.gemm(a, a)
    torch.cuda.synchronize()
    print("no error")
except RuntimeError as error:
    print(type(error).__name__)
"""


@needs_gpu
class Processes(unittest.TestCase):
    def test_the_first_call_of_all_in_a_capture(self):
        self.assertEqual(ran(FIRST_IN_A_CAPTURE), (0, "FAILED_PRECONDITION\nTrue\n"))

    def test_forks(self):
        for when in ("before", "after"):
            self.assertEqual(ran(FORKED, when), (0, "0 True\n"), when)

    def test_a_pending_error_of_torchs_runtime(self):
        self.assertEqual(ran(PENDING), (0, "101 101 True\n"))

    def test_a_context_that_is_broken(self):
        code, text = ran(CONTEXTS)
        self.assertEqual(code, 0, text)
        self.assertNotIn("no error", text)


if __name__ == "__main__":
    unittest.main()
