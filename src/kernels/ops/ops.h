// The operations of a graph besides products, in FP32 on the host with all threads. Pointers are
// host memory, matrices are packed and row-major. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "culet/tensor.h"
#include "culet/types.h"
#include "kernels/ops/attention_rows.h"

namespace culet::ops {

// -- Element by element; out may be an operand (elementwise.cc)
// ------------------------------------

void Add(const float* a, const float* b, float* out, std::size_t n);
void Mul(const float* a, const float* b, float* out, std::size_t n);
void Silu(const float* x, float* out, std::size_t n);
void SwiGlu(const float* gate, const float* up, float* out, std::size_t n);
void GeGlu(const float* gate, const float* up, float* out, std::size_t n);
/// x / (1 + exp(-gate)).
void SigmoidGate(const float* x, const float* gate, float* out, std::size_t n);
/// As a graph's ClampedSwiGlu.
void ClampedSwiGlu(const float* gate, const float* up, float limit, float slope, float* out,
                   std::size_t n);
void Scale(const float* x, float by, float* out, std::size_t n);
/// cap * tanh(x / cap).
void SoftCap(const float* x, float cap, float* out, std::size_t n);
/// Between float32, float16 and bfloat16, one rounding.
void Cast(const void* x, DataType from, void* out, DataType to, std::size_t n);

// -- Rows -----------------------------------------------------------------------------------------

/// `groups` groups of gamma.size() elements, or of `stride` where that is more: the others stay as
/// they are (rms_norm.cc).
void RmsNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
             std::int64_t groups, std::int64_t stride = 0);

/// Rows of gamma.size() elements, without their mean (layer_norm.cc).
void LayerNorm(const float* x, std::span<const float> gamma, float epsilon, float* out,
               std::int64_t rows);

/// Row i times 1 + by * ln(1 + floor((positions[i] + ahead) / original)); out may be x
/// (layer_norm.cc).
void PositionScale(const float* x, const std::int32_t* positions, double ahead, float by,
                   double original, float* out, std::int64_t rows, std::int64_t cols);

/// sum = x + y, out = RmsNorm of sum, with the bits of Add and RmsNorm. sum may be x, y or out
/// (rms_norm.cc).
void AddRmsNorm(const float* x, const float* y, std::span<const float> gamma, float epsilon,
                float* sum, float* out, std::int64_t groups);

/// out row i = row indices[i] of a table of `all_rows` rows of float32, float16 or bfloat16, of
/// which rows from `first_row` on are here; zeros for the others, NaN for an index beyond all
/// (rows.cc).
void PickRows(const void* table, DataType type, std::int64_t table_rows, std::int64_t cols,
              const std::int32_t* indices, float* out, std::int64_t rows, std::int64_t first_row,
              std::int64_t all_rows);

/// Row i goes to row slots[i] of a cache of float32, float16 or bfloat16, unless that is outside
/// (rows.cc).
void KvWrite(const float* rows, const std::int32_t* slots, void* cache, DataType type,
             std::int64_t cache_rows, std::int64_t cols, std::int64_t m);

/// The same to a cache of float8_e4m3, with a scale for each head (rows.cc).
void KvWriteE4m3(const float* rows, const std::int32_t* slots, std::uint8_t* cache,
                 std::span<const float> scales, std::int64_t cache_rows, std::int64_t cols,
                 std::int64_t m);

/// Index of each row's largest element, the first of equals, the first NaN if there is one
/// (argmax.cc).
void ArgMax(const float* x, std::int32_t* out, std::int64_t rows, std::int64_t cols);

/// A token of each row, as the graph's Sample draws it (sample.cc).
struct SampleArgs {
  const float* logits = nullptr;          ///< (rows, cols)
  const std::int32_t* options = nullptr;  ///< (rows) SamplingRows
  const std::int32_t* draws = nullptr;    ///< (rows)
  std::uint32_t first_draw = 0;           ///< added to them
  std::int32_t* out = nullptr;            ///< (rows)
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::uint64_t* workspace = nullptr;
  std::size_t workspace_bytes = 0;  ///< one made for fewer threads than there are now limits them
};
void Sample(const SampleArgs& args);
/// Bytes of workspace, by today's threads.
std::size_t SampleWorkspace(std::int64_t rows, std::int64_t cols);

/// One FP32 scale for `group` elements of a row, as culet/quantize.h (quantize_rows.cc).
/// `scales`: (rows, ceil(cols / group)).
void QuantizeRows(const float* x, std::int64_t rows, std::int64_t cols, int group,
                  std::uint8_t* values, float* scales);

/// Rows with one scale that is given: codes of x / scale, beyond 448 those of 448, a NaN for what
/// is not finite (rows.cc). `scales`: (rows), all of them `scale`.
void QuantizeRowsBy(float scale, const float* x, std::int64_t rows, std::int64_t cols,
                    std::uint8_t* values, float* scales);

/// Where QuantizeRows of what an operation makes goes (quantized_rows.cc).
constexpr int kMostFusedGroup = 256;
struct QuantizedTo {
  int group = 0;  ///< at most kMostFusedGroup
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
};
/// With the bits of SwiGlu and QuantizeRows.
void SwiGluQuantize(const float* gate, const float* up, std::int64_t rows, std::int64_t cols,
                    const QuantizedTo& to);
/// With the bits of RmsNorm and QuantizeRows, of rows of gamma.size() elements. With a `y` it is
/// the norm of x + y, which is left in `sum`; that may be x or y.
void RmsNormQuantize(const float* x, const float* y, std::span<const float> gamma, float epsilon,
                     float* sum, std::int64_t rows, const QuantizedTo& to);

/// Of each of `heads` heads of `in` elements of a row of x the product with its own rows of W,
/// which is (heads * sums, k) of float32, float16 or bfloat16, and behind that the head's elements
/// from k on (head_mul_mat.cc). out: (rows, heads * (sums + in - k)).
struct HeadMulMatArgs {
  const float* x = nullptr;
  const void* weight = nullptr;
  DataType type = DataType::kNull;
  float* out = nullptr;
  std::int64_t rows = 0, heads = 0, in = 0, sums = 0, k = 0;
  float* workspace = nullptr;  ///< HeadMulMatWorkspace floats
  std::size_t workspace_floats = 0;
};
void HeadMulMat(const HeadMulMatArgs& args);
/// By today's threads; one made for fewer threads limits them.
std::size_t HeadMulMatWorkspace(std::int64_t k);

// -- Attention ------------------------------------------------------------------------------------

/// In place on `rows` rows of `heads` heads. `frequencies`: those of RopeFrequencies. `workspace`:
/// RopeWorkspace floats (rope.cc).
void Rope(const RopeParams& params, std::span<const double> frequencies,
          const std::int32_t* positions, float* x, std::int64_t rows, int heads, int head_dim,
          float* workspace);
std::size_t RopeWorkspace(const RopeParams& params, std::int64_t rows) noexcept;

/// K and V: float32, float16, bfloat16 or float8_e4m3. A row that sees no key, or a block outside
/// the cache, is NaN. `workspace`: AttentionWorkspace floats (attention.cc).
struct AttentionArgs {
  AttentionParams params;
  const float* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  DataType kv_type = DataType::kFloat32;
  const float* k_scales = nullptr;  ///< (kv_heads) of float8_e4m3; null otherwise
  const float* v_scales = nullptr;
  const float* sinks = nullptr;  ///< (heads), or null
  float* out = nullptr;
  std::int64_t rows = 0;
  float* workspace = nullptr;
  std::size_t workspace_floats = 0;  ///< one made for fewer threads than there are now limits them
};
void Attention(const AttentionArgs& args, const AttentionRows& keys);
/// For up to `rows` rows that see up to `keys` keys each.
std::size_t AttentionWorkspace(const AttentionParams& params, std::int64_t rows, std::int64_t keys);

// -- Routed experts (route.cc) --------------------------------------------------------------------

/// Shares and routes, as a graph's Route makes them.
struct RouteArgs {
  const float* logits = nullptr;  ///< (rows, experts)
  const float* bias = nullptr;    ///< (experts), or null
  RoutingParams routing;
  float* shares = nullptr;         ///< (rows, active)
  std::int32_t* starts = nullptr;  ///< (experts + 1)
  std::int32_t* routes = nullptr;  ///< (rows * active)
  std::int32_t* places = nullptr;  ///< (rows * active)
  std::int64_t rows = 0;
  int experts = 0;
  float* workspace = nullptr;  ///< of RouteWorkspace bytes
};
void Route(const RouteArgs& args);
std::size_t RouteWorkspace(std::int64_t rows, int experts, const RoutingParams& routing);

/// The sums of rows that a graph's Combine makes.
struct CombineArgs {
  const float* x = nullptr;              ///< (rows * active, cols)
  const float* shares = nullptr;         ///< (rows, active); null: all are 1
  const std::int32_t* places = nullptr;  ///< (rows, active): where a row of x lies
  std::int64_t first = 0, end = 0;       ///< rows of x that count
  float* out = nullptr;                  ///< (rows, cols)
  std::int64_t rows = 0, active = 0, cols = 0;
};
void Combine(const CombineArgs& args);

}  // namespace culet::ops
