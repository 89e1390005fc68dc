"""What `import culet` costs: no other package, and few modules of the standard library."""

import inspect
import subprocess
import sys
import typing
import unittest

PROGRAM = """
import sys
before = set(sys.modules)
import culet
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""
# What ctypes and the package themselves import; each costs a fraction of a millisecond.
EXPECTED = {"culet", "_ctypes", "_weakrefset", "ctypes", "struct", "_struct"}


class Import(unittest.TestCase):
    def test_no_other_package(self):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                              check=True)
        loaded = set(done.stdout.split())
        self.assertIn("culet", loaded)
        foreign = loaded - EXPECTED - set(getattr(sys, "stdlib_module_names", loaded))
        self.assertEqual(foreign, set())
        for name in ("numpy", "torch", "ml_dtypes", "tokenizers", "jinja2", "transformers", "asyncio",
                     "json", "multiprocessing", "subprocess", "inspect"):
            self.assertNotIn(name, loaded)

    def test_type_hints(self):
        import culet
        for function in (culet.autotune.__init__, culet.devices, culet.explain, culet.fp8_gemm_nt, culet.gemm,
                         culet.load_cache, culet.pack, culet.plan, culet.quantize_fp8, culet.save_cache,
                         culet.tune_model, culet.Plan.__call__, culet.LLM.generate, culet.LLM.stream):
            hints = typing.get_type_hints(function)
            named = {name for name in inspect.signature(function).parameters if name != "self"}
            self.assertEqual(named | {"return"}, set(hints), function)
            self.assertTrue(function.__doc__ or function.__name__ == "__init__", function)


if __name__ == "__main__":
    unittest.main()
