"""DeepGEMM's functions that culet has no counterpart of, by name: to call one raises
NotImplementedError with the reason, to import one does not fail."""

import re

_GROUPED = ("grouped products are of rows of a: m_grouped_fp8_gemm_nt_contiguous, _masked and those of BF16; any "
            "alignment will do")
_REASONS = (
    (r"(\w+_)?[mk]_grouped_\w+|get_theoretical_mk_alignment_for_contiguous_layout", _GROUPED),
    (r"fp4_gemm_nt|cublaslt_nvfp4_gemm_nt|per_token_cast_to_(nv)?fp4|transpose_packed_fp4|cast_back_from_fp4"
     r"|\w*ue4m3\w*", "SM90 has no units for FP4"),
    (r"cast_back_from_fp8", "values times scales is an operation of torch's"),
    (r"get_mn_major_tma_aligned_packed_ue8m0_tensor|get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor"
     r"|pack_ue8m0_to_int|unpack_ue8m0_from_int", "packed UE8M0 scales are SM100's layout; SM90's are float32"),
    (r"cublaslt_gemm_(nt|nn|tn|tt)", "culet chooses by itself whether cuBLASLt's kernel is the fastest; call "
     "bf16_gemm_nt, and culet.explain to see the choice"),
    (r"fp8_einsum|einsum|batched_sy(rk|mm)|fp8_gemm_nt_skip_head_mid|tf32_hc_prenorm_gemm|bf16_mega_gate"
     r"|get_bf16_mega_gate_config|mega_mhc", "it is no plain product"),
    (r"\w*mqa_logits\w*", "attention is not a part of culet's products; culet.LLM runs whole models"),
    (r"\w*mega_moe\w*|\w*SymmBuffer|mega", "mixtures of experts over several GPUs are not in culet"),
    (r"init_dist|uneven_all_gather|dist_print", "culet works on one GPU; torch.distributed joins several"),
    (r"\w*localiz\w*|\w*locality_domains?", "culet leaves tensors where torch put them"),
    (r"epilogue", "the products of culet.deep_gemm have none but alpha and c"),
    (r"jit|jit_kernels|JITTuner|legacy|shutdown", "nothing is compiled at run time, and nothing needs an end"),
    (r"set_block_size_multiple_of", "culet's tiles are compiled ahead"),
    (r"use_deterministic_algorithms", "culet.deep_gemm's products do not take it: which kernel is fastest may "
     "differ from run to run where nothing was tuned and saved"),
    (r"test_filter|ignore_env|assert_bitwise_equal|check_signal", "it is for DeepGEMM's own tests"),
    (r"bench|bench_kineto",
     "culet measures with the program `culet bench` and with culet.autotune"),
)


def missing(module: str, name: str):
    """The function that refuses in the place of `name`. AttributeError for what DeepGEMM has not."""
    for pattern, reason in _REASONS:
        if re.fullmatch(pattern, name):
            def refuse(*args, **options):
                raise NotImplementedError(f"{module}.{name}: {reason}")
            refuse.__name__ = refuse.__qualname__ = name
            refuse.__doc__ = f"Raises NotImplementedError: {reason}."
            return refuse
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
