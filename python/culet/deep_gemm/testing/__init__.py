"""DeepGEMM's helpers of tests: its measures of a result."""

from culet.deep_gemm._missing import missing
from culet.deep_gemm.testing import numeric, utils
from culet.deep_gemm.testing.bench import empty_suppress, suppress_stdout_stderr
from culet.deep_gemm.testing.numeric import calc_diff, count_bytes
from culet.deep_gemm.testing.utils import get_arch_major

__all__ = ["calc_diff", "count_bytes", "empty_suppress", "get_arch_major", "numeric", "suppress_stdout_stderr", "utils"]

bench = missing(__name__, "bench")  # the function, as there, and not the module


def __getattr__(name: str):
    return missing(__name__, name)
