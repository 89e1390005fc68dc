// The matrix products of a decoder model, read from its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "culet/desc.h"
#include "culet/status.h"

namespace culet {

/// Named formats of the CLI.
enum class Format : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kF32Bf16,    ///< F32 activations, BF16 weights
  kF32F16,     ///< F32 activations, F16 weights
  kFp8Block,   ///< E4M3, FP32 scales 1x128 (A) by 128x128 (B), BF16 output
  kFp8Row,     ///< E4M3, an FP32 scale for each row of A and each column of B, BF16 output
  kFp8Tensor,  ///< E4M3, one FP32 scale for A and one for B, BF16 output
  kU4,     ///< BF16 activations, uint4 weights, F16 scales and BF16 zero points of groups of 128
  kMxfp4,  ///< BF16 activations, E2M1 weights, UE8M0 scales of groups of 32
  kInt8,   ///< BF16 activations, int8 weights, F16 scales of groups of 32
  kW8,     ///< BF16 activations, E4M3 weights, an FP32 scale for each column of B
};
/// "f32", "f16", "bf16", "f32-bf16", "f32-f16", "fp8-block", "fp8-row", "fp8-tensor", "u4",
/// "mxfp4", "int8", "w8"
const char* ToString(Format) noexcept;
/// Errors: INVALID_ARGUMENT, listing the known formats.
Result<Format> ParseFormat(std::string_view text);

/// One product of a decoder: a weight (n, k) and how often a token meets it.
struct ModelProduct {
  std::string name;        ///< "qkv", "o", "gate_up", "down", "experts.gate_up", "lm_head", ...
  int n = 0;               ///< output features
  int k = 0;               ///< input features
  int layers = 1;          ///< layers that have it
  int experts = 0;         ///< routed experts a layer holds; 0 for a dense product
  int active_experts = 0;  ///< routed experts a token uses
};

/// Rows that the product sees when `tokens` tokens are in flight: all of them, or a routed expert's
/// even share, ceil(tokens * active_experts / experts).
int RowsOf(const ModelProduct& product, int tokens) noexcept;

struct ModelShapes {
  std::string architecture;  ///< "LlamaForCausalLM"
  std::string model_type;    ///< "llama"
  /// How the checkpoint stores its weights; empty when that is none of the formats known here.
  std::optional<Format> format;
  std::vector<ModelProduct> products;
};

/// Architectures that ReadModelShapes knows, for messages.
std::vector<std::string> KnownArchitectures();

/// Reads `path`, a config.json or a folder that holds one. Fused as engines run them: q, k and v in
/// one product, gate and up in one.
/// Errors: NOT_FOUND, IO; DATA_LOSS for text that is not JSON; INVALID_ARGUMENT for a missing or
/// impossible key (named, with its value); UNSUPPORTED for an unknown architecture, listing the
/// known ones.
Result<ModelShapes> ReadModelShapes(const std::string& path);

/// The same from the text of a config.json; `origin` names it in messages.
Result<ModelShapes> ParseModelShapes(std::string_view json, const std::string& origin);

/// The key of D (m, n) = A (m, k) W^T in a format, W (n, k) with k contiguous, everything aligned.
/// `output` kNull means the format's usual one: F32 for f32 and mixed, else that of A (BF16 for
/// FP8). Errors: INVALID_ARGUMENT unless m, n, k >= 1.
Result<GemmDesc> MakeDesc(Format format, int m, int n, int k, int arch,
                          DataType output = DataType::kNull);

/// A line of a shapes file.
struct NamedShape {
  std::string name;
  int m = 0, n = 0, k = 0;
};
/// Reads lines "name m n k"; '#' starts a comment. Errors: NOT_FOUND, IO; INVALID_ARGUMENT with
/// file and line.
Result<std::vector<NamedShape>> ReadShapes(const std::string& path);

}  // namespace culet
