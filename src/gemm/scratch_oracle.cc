#include "gemm/scratch_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/scratch_fill.h"
#include "gemm/stop.h"

namespace culet {
namespace {

constexpr std::int64_t kWholeProducts = std::int64_t{1} << 26;     // about 0.1 s on one core
constexpr std::int64_t kWholeElementsOfA = std::int64_t{1} << 22;  // 32 MB of doubles
constexpr int kSampledRows = 64;
constexpr int kSampledOutputs = 64 * 256;  // more columns where there are fewer rows
constexpr int kPromotionInterval = 128;    // what Accumulate::kPromoted promises for FP8
constexpr int kTileEdge = 64;  // every tile of every kernel starts at a multiple of a power of two

// Along K, work that is not interrupted: some milliseconds.
constexpr int kPiece = 1 << 20;

// Both ends, the tail of a tile of 16, tile edges spread over the extent, and a random rest.
std::vector<int> Sample(int extent, int count) {
  std::vector<int> picked;
  if (extent <= count) {
    for (int i = 0; i < extent; ++i) picked.push_back(i);
    return picked;
  }
  std::vector<bool> taken(static_cast<std::size_t>(extent));
  const auto pick = [&](int i) {
    if (static_cast<int>(picked.size()) == count || taken[static_cast<std::size_t>(i)]) return;
    taken[static_cast<std::size_t>(i)] = true;
    picked.push_back(i);
  };
  pick(0);
  for (int i = std::max(0, extent - 17); i < extent; ++i) pick(i);
  const int edges = (extent - 1) / kTileEdge;
  const int used_edges = std::min(edges, count / 4);
  for (int i = 1; i <= used_edges; ++i) {
    const int edge = static_cast<int>(std::int64_t{edges} * i / used_edges) * kTileEdge;
    pick(edge - 1);
    pick(edge);
  }
  std::mt19937 random(static_cast<unsigned>(extent));
  while (static_cast<int>(picked.size()) < count) {
    pick(static_cast<int>(random() % static_cast<unsigned>(extent)));
  }
  std::ranges::sort(picked);
  return picked;
}

// Along-K elements of row `outer` of A's `outers` (or column `outer` of B's), times their scales.
template <class Ended>
void LoadScaled(const Region& values, const Region& scales, const QuantDesc& quant, bool is_a,
                int outers, int outer, int k, const std::byte* block, Ended ended, double* out) {
  // A's K runs along its columns, B's along its rows.
  const auto load = [&](const Region& region, int at, int count, double* to) {
    const MatrixLayout& layout = region.layout;
    const bool contiguous = (layout.order == Order::kRowMajor) == is_a;
    const std::int64_t first = contiguous ? at * layout.ld : at;
    const std::int64_t step = contiguous ? 1 : layout.ld;
    for (int i = 0; i < count && !ended(); i += std::min(kPiece, count - i)) {
      LoadLine(block + region.data, layout.type, first + i * step, step,
               std::min(kPiece, count - i), to + i);
    }
  };
  load(values, outer, k, out);
  if (!scales.present()) return;
  const ScaleGroup group = ScaleGroupOf(quant, outers, k);
  const int groups = (k - 1) / group.k + 1;
  std::vector<double> factors(static_cast<std::size_t>(groups));
  load(scales, outer / group.outer, groups, factors.data());
  for (int i = 0; i < k; ++i) out[i] *= factors[static_cast<std::size_t>(i / group.k)];
}

struct Sums {
  double value = 0, magnitude = 0;  // sum of a b, sum of |a b|
};

// Four partial sums each: the order of double-precision additions does not matter here.
Sums Dot(const double* a, const double* b, int k) noexcept {
  double value[4] = {}, magnitude[4] = {};
  int i = 0;
  for (; i + 4 <= k; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double product = a[i + lane] * b[i + lane];
      value[lane] += product;
      magnitude[lane] += std::fabs(product);
    }
  }
  for (; i < k; ++i) {
    value[0] += a[i] * b[i];
    magnitude[0] += std::fabs(a[i] * b[i]);
  }
  return {(value[0] + value[1]) + (value[2] + value[3]),
          (magnitude[0] + magnitude[1]) + (magnitude[2] + magnitude[3])};
}

template <class Ended>
Sums DotInPieces(const double* a, const double* b, int k, Ended ended) {
  Sums all;
  for (int i = 0; i < k && !ended(); i += std::min(kPiece, k - i)) {
    const Sums piece = Dot(a + i, b + i, std::min(kPiece, k - i));
    all.value += piece.value;
    all.magnitude += piece.magnitude;
  }
  return all;
}

// How far Hopper's FP8 unit may be from the sum of a b (E4M3 numbers times scales that are equal
// within an interval). An instruction adds 32 products and the accumulator: each addend is
// truncated towards zero, 14 bits below the largest one (measured: 2^13 + 1 is kept, 2^14 + 1 is
// not). A product has 8 bits, so those within 2^5 of the largest lose nothing, whichever way the
// unit counts exponents; the smaller ones lose the unit in the last place or all they have.
// Positive and negative products err in opposite directions. `interval` elements are summed before
// they move to FP32.
double Fp8UnitError(const double* a, const double* b, int k, int interval) noexcept {
  constexpr int kInstruction = 32;
  constexpr double kUnit = 0x1p-13, kWhole = 0x1p-5;
  double all = 0, sum = 0, error = 0;
  for (int begin = 0; begin < k; begin += kInstruction) {
    if (begin % interval == 0) {
      all += error;
      sum = error = 0;
    }
    const int count = std::min(kInstruction, k - begin);
    double products[kInstruction];
    double largest = std::fabs(sum) + error;
    const double held = largest;
    for (int i = 0; i < count; ++i) {
      products[i] = a[begin + i] * b[begin + i];
      largest = std::max(largest, std::fabs(products[i]));
    }
    const double unit = kUnit * largest, whole = kWhole * largest;
    double losses = 0, signed_losses = 0;
    for (int i = 0; i < count; ++i) {
      const double size = std::fabs(products[i]);
      const double loss = size < whole ? std::min(size, unit) : 0.0;
      losses += loss;
      signed_losses += std::copysign(loss, products[i]);
      sum += products[i];
    }
    // The larger of what positive and what negative products lose.
    error += (losses + std::fabs(signed_losses)) / 2 + std::min(held, unit);
    error += kUnit * (std::fabs(sum) + error);  // the result itself
  }
  return all + error;
}

bool IsPowerOfTwo(double value) noexcept {
  int exponent = 0;
  return std::fabs(std::frexp(value, &exponent)) == 0.5;
}

// How FP32 arithmetic on the device may err, relative to the sum of magnitudes.
class ErrorModel {
 public:
  ErrorModel(const GemmDesc& desc, const ScratchOptions& options)
      : unit_(desc.arch == 0 ? 0x1p-24 : 0x1p-23),  // GPUs' matrix units truncate
        exact_(options.fill == Fill::kIntegers && IntegersAreExact(desc)),
        exact_epilogue_(exact_ && IsPowerOfTwo(options.alpha) &&
                        (desc.c.type == DataType::kNull || IsPowerOfTwo(options.beta))) {
    product_ = Gamma(desc.k + 6.0);
    addend_ = Gamma(3);
    underflow_ = (desc.k + 6.0) * 0x1p-126;
    const bool fp8 = desc.a.type == DataType::kFloat8_e4m3 && desc.b.type == DataType::kFloat8_e4m3;
    if (desc.arch != 0 && fp8 && !exact_)
      fp8_interval_ = desc.accumulate == Accumulate::kFast ? desc.k : kPromotionInterval;
  }

  /// Of alpha * (sum of a b): `a`, `b` of length k, and the sums that Dot made of them.
  double ProductSlack(const double* a, const double* b, int k, double alpha,
                      const Sums& sums) const noexcept {
    if (exact_) return exact_epilogue_ ? 0 : addend_ * std::fabs(alpha * sums.value);
    const double unit = fp8_interval_ > 0 ? Fp8UnitError(a, b, k, fp8_interval_) : 0;
    return std::fabs(alpha) * (product_ * sums.magnitude + unit) + underflow_;
  }

  /// Of what is added to it.
  double AddendSlack(double addends) const noexcept {
    return exact_epilogue_ ? 0 : addend_ * addends;
  }

 private:
  double Gamma(double roundings) const noexcept {
    return roundings * unit_ / (1 - roundings * unit_);
  }

  double unit_;
  bool exact_;
  bool exact_epilogue_;
  double product_ = 0, addend_ = 0, underflow_ = 0;
  int fp8_interval_ = 0;  // 0: no FP8 unit takes part
};

}  // namespace

Result<Oracle> MakeOracle(const GemmDesc& desc, const Arrangement& at,
                          const ScratchOptions& options, const std::byte* block) {
  const std::int64_t elements_of_a = std::int64_t{desc.m} * desc.k;
  const bool whole = elements_of_a <= kWholeElementsOfA && elements_of_a <= kWholeProducts / desc.n;
  Oracle oracle;
  oracle.rows = Sample(desc.m, whole ? desc.m : kSampledRows);
  oracle.cols =
      Sample(desc.n, whole ? desc.n : kSampledOutputs / static_cast<int>(oracle.rows.size()));
  const std::size_t rows = oracle.rows.size(), cols = oracle.cols.size();
  const auto k = static_cast<std::size_t>(desc.k);
  oracle.reference.resize(rows * cols);
  oracle.slack.resize(rows * cols);

  Stop stop(options.stop);
  if (stop()) return stop.status();  // other threads may take all the work
  std::vector<double> a(rows * k);
  HostPool().Run(static_cast<int>(rows), [&](int row, int thread) {
    LoadScaled(
        at.a, at.u, desc.a.quant, true, desc.m, oracle.rows[static_cast<std::size_t>(row)], desc.k,
        block, [&] { return stop(thread); }, a.data() + static_cast<std::size_t>(row) * k);
  });

  const ErrorModel model(desc, options);
  const auto element = [&](const Region& region, int row, int col) {
    return LoadAsDouble(block + region.data, region.layout.type, IndexOf(region.layout, row, col));
  };
  HostPool().Run(static_cast<int>(cols), [&](int task, int thread) {
    const auto ended = [&] { return stop(thread); };
    const auto j = static_cast<std::size_t>(task);
    const int col = oracle.cols[j];
    std::vector<double> b(k);
    LoadScaled(at.b, at.v, desc.b.quant, false, desc.n, col, desc.k, block, ended, b.data());
    for (std::size_t i = 0; i < rows; ++i) {
      if (ended()) return;
      const int row = oracle.rows[i];
      const Sums sums = DotInPieces(a.data() + i * k, b.data(), desc.k, ended);
      const double product = options.alpha * sums.value;
      const double c = at.c.present() ? options.beta * element(at.c, row, col) : 0;
      const double bias =
          at.bias.present() ? element(at.bias, 0, desc.bias_axis == Bias::Axis::kN ? col : row) : 0;
      oracle.reference[i * cols + j] = product + c + bias;
      oracle.slack[i * cols + j] =
          model.ProductSlack(a.data() + i * k, b.data(), desc.k, options.alpha, sums) +
          model.AddendSlack(std::fabs(c) + std::fabs(bias));
    }
  });
  CULET_RETURN_IF_ERROR(stop.status());
  return oracle;
}

Interval AllowedAround(double reference, double slack, DataType type) noexcept {
  // An infinite or NaN reference has no slack to speak of.
  if (!std::isfinite(reference) || !std::isfinite(slack)) slack = 0;
  return {RoundTo(type, reference - slack), RoundTo(type, reference + slack)};
}

double OverBound(double value, double reference, const Interval& allowed) noexcept {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(reference)) return std::isnan(value) ? 0 : kInfinity;
  if (std::isnan(value)) return kInfinity;
  const bool inside = allowed.low <= value && value <= allowed.high;
  if (value == reference || (inside && allowed.low == allowed.high)) return 0;
  const double bound = std::max(allowed.high - reference, reference - allowed.low);
  const double ratio = std::fabs(value - reference) / bound;  // infinite, or NaN for infinities
  if (inside) return std::isfinite(ratio) ? std::min(ratio, 1.0) : 1.0;
  return std::max(std::isnan(ratio) ? kInfinity : ratio, std::nextafter(1.0, 2.0));
}

}  // namespace culet
