"""fp8_gemm_nt on CUDA tensors: needs torch and a GPU; everything else of the package is tested
without them."""

import threading
import unittest

import culet
from culet import _plans

try:
    import torch
    HAVE_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
except ImportError:
    HAVE_GPU = False

POISON = 0x7FED  # a NaN of BF16
PAD = 64         # elements around and between the rows of an output


class Problem:
    """Inputs whose every partial sum is a whole number, and the exact product."""

    def __init__(self, m, n, k, column_major=False, device="cuda", seed=0):
        generator = torch.Generator(device=device).manual_seed(seed)

        def integers(low, high, *shape):
            return torch.randint(low, high, shape, device=device, generator=generator).float()

        groups, blocks = -(-k // 128), -(-n // 128)
        a, b = integers(-2, 3, m, k), integers(-2, 3, n, k)
        u, v = 2 ** integers(0, 3, m, groups), 2 ** integers(0, 2, blocks, groups)
        wide = [torch.full((x.shape[0], k + 16), float("nan"), device=device).to(
            torch.float8_e4m3fn) for x in (a, b)]
        for storage, x in zip(wide, (a, b)):
            storage.view(torch.uint8)[:, :k] = x.to(torch.float8_e4m3fn).view(torch.uint8)
        self.a, self.b = (storage[:, :k] for storage in wide)
        self.u = u.t().contiguous().t() if column_major else u
        self.v = v
        scaled_a = a.double() * u.repeat_interleave(128, 1)[:, :k].double()
        scaled_b = b.double() * v.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
        self.expected = (scaled_a @ scaled_b.double().t()).to(torch.bfloat16)
        self.storage = torch.empty((m + 2, n + PAD), dtype=torch.bfloat16, device=device)
        self.d = self.storage[1:m + 1, :n]
        self.poison()

    def poison(self):
        self.storage.view(torch.int16).fill_(POISON)

    def launch(self, **options):
        culet.fp8_gemm_nt((self.a, self.u), (self.b, self.v), self.d, **options)

    def wrong(self):
        m, n = self.d.shape
        guards = self.storage.clone().view(torch.int16)
        inside = guards[1:m + 1, :n].clone()
        guards[1:m + 1, :n] = POISON
        difference = (inside != self.expected.view(torch.int16)) & ~(
            (self.d == 0) & (self.expected == 0))
        return int(difference.sum()) + int((guards != POISON).sum())


@unittest.skipUnless(HAVE_GPU, "no torch with a Hopper GPU")
class Cuda(unittest.TestCase):
    def check(self, problem, **options):
        for _ in range(2):
            problem.poison()
            problem.launch(**options)
            self.assertEqual(problem.wrong(), 0)

    def test_exact(self):
        shapes = ((1, 2112, 7168), (3, 128, 128), (17, 384, 640), (64, 1024, 512), (100, 576, 2048),
                  (128, 4096, 512), (257, 1024, 1536), (1024, 2112, 1024))
        for shape in shapes:
            for column_major in (False, True):
                with self.subTest(shape=shape, column_major=column_major):
                    self.check(Problem(*shape, column_major))

    def test_any_shape(self):
        for shape in ((1, 1, 1), (5, 130, 200), (33, 257, 129)):
            with self.subTest(shape=shape):
                self.check(Problem(*shape))

    def test_pdl(self):
        first, second = Problem(16, 1024, 2048), Problem(16, 2048, 1024, seed=1)
        for _ in range(200):
            first.launch(pdl=True)
            second.launch(pdl=True)
        self.assertEqual((first.wrong(), second.wrong()), (0, 0))

    def test_capture(self):
        problem = Problem(16, 2112, 1024)
        problem.launch()
        torch.cuda.synchronize()
        problem.poison()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # entering takes memory, for torch's generators
            free = torch.cuda.mem_get_info()[0]
            for _ in range(3):
                problem.launch()
            after = torch.cuda.mem_get_info()[0]
        self.assertGreaterEqual(after, free)
        torch.cuda.synchronize()
        self.assertNotEqual(problem.wrong(), 0)  # captured, not run
        for _ in range(3):
            problem.poison()
            graph.replay()
            self.assertEqual(problem.wrong(), 0)

    def test_graphs_have_workspaces_of_their_own(self):
        problems = [Problem(5, 130, 8200, seed=seed) for seed in range(2)]
        if not any(plan.workspace for plan in self.plans_of(problems)):
            self.skipTest("no kernel with a workspace was chosen")
        graphs = [torch.cuda.CUDAGraph() for _ in problems]
        for graph, problem in zip(graphs, problems):
            problem.launch()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for _ in range(20):
                    problem.launch()
        streams = [torch.cuda.Stream() for _ in problems]
        for _ in range(20):
            for problem in problems:
                problem.poison()
            torch.cuda.synchronize()
            for graph, stream in zip(graphs, streams):
                with torch.cuda.stream(stream):
                    graph.replay()
            torch.cuda.synchronize()
            self.assertEqual([problem.wrong() for problem in problems], [0, 0])
        with self.assertRaisesRegex(culet.Error, "between two captures"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                problems[0].launch()
        torch.cuda.synchronize()
        self.check(problems[0])

    @staticmethod
    def plans_of(problems):
        known = set(_plans.PLANS)
        for problem in problems:
            problem.launch()
        return [plan for key, plan in _plans.PLANS.items() if key not in known]

    def test_an_unplanned_problem_in_a_capture(self):
        problem = Problem(16, 2304, 1024)
        for tuning in (False, True):
            with self.assertRaisesRegex(culet.Error, "once before the capture") as caught:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    if tuning:
                        with culet.autotune():
                            problem.launch()
                    else:
                        problem.launch()
            self.assertEqual(caught.exception.status, "FAILED_PRECONDITION")
            torch.cuda.synchronize()
        self.check(problem)

    def test_autotune(self):
        for shape in ((1, 4096, 4096), (256, 2112, 1024)):
            problem = Problem(*shape)
            with culet.autotune(budget=10) as tuning:
                problem.launch()
            self.assertEqual(problem.wrong(), 0)
            self.assertEqual([result.pdl for result in tuning.results], [False, True])
            for result in tuning.results:
                self.assertGreater(result.measurements, 0)
                self.assertLessEqual(result.time_us, result.baseline_us)
            self.check(problem)
            self.check(problem, pdl=True)
            self.assertIn("(measured)", culet.explain(
                (problem.a, problem.u), (problem.b, problem.v), problem.d, pdl=True))

    def test_streams_and_threads(self):
        shared = Problem(32, 2048, 2048)
        failures = []

        def work(seed):
            own = Problem(32, 2048, 2048, seed=seed)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                for _ in range(100):
                    own.poison()
                    own.launch()
            stream.synchronize()
            failures.append(own.wrong())

        shared.launch()
        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [0] * 4)

    def test_every_device(self):
        for index in range(torch.cuda.device_count()):
            before = torch.cuda.current_device()
            self.check(Problem(16, 1024, 1024, device=f"cuda:{index}"))
            self.assertEqual(torch.cuda.current_device(), before)

    def test_operands_of_two_devices(self):
        problem = Problem(4, 256, 256)
        with self.assertRaisesRegex(culet.InvalidArgument, "a's scales is on the CPU"):
            culet.fp8_gemm_nt((problem.a, problem.u.cpu()), (problem.b, problem.v), problem.d)

    def test_torch_on_the_cpu(self):
        problem = Problem(5, 130, 200, device="cpu")
        self.check(problem)


if __name__ == "__main__":
    unittest.main()
