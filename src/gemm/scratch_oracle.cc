#include "gemm/scratch_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "gemm/error_model.h"
#include "gemm/stop.h"

namespace culet {
namespace {

constexpr std::int64_t kWholeProducts = std::int64_t{1} << 26;     // about 0.1 s on one core
constexpr std::int64_t kWholeElementsOfA = std::int64_t{1} << 22;  // 32 MB of doubles
constexpr int kSampledRows = 64;
constexpr int kSampledOutputs = 64 * 256;  // more columns where there are fewer rows
constexpr int kTileEdge = 64;  // every tile of every kernel starts at a multiple of a power of two

// Elements of K between two checks for an interrupt: some milliseconds of work.
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

// The columns of D that are compared: whole groups of a quantised D, since a scale depends on all
// of them.
std::vector<int> SampleColumns(const GemmDesc& desc, int count) {
  const int columns = ColumnsOfD(desc);
  if (desc.d.quant.type == QuantType::kNone) return Sample(columns, count);
  const int group = desc.d.quant.group_size;
  std::vector<int> picked;
  for (const int g : Sample((columns - 1) / group + 1, std::max(1, count / group))) {
    for (int i = g * group; i < std::min(columns, (g + 1) * group); ++i) picked.push_back(i);
  }
  return picked;
}

// One operand in the host block, seen as lines along K: rows of A, columns of B.
struct Lines {
  const Region& values;
  const Region& scales;
  const Region& zeros;
  const QuantDesc& quant;
  bool is_a;
  int outers;  // lines of one matrix
  int k;
};

// `count` elements along K of line `outer` of matrix `matrix`.
template <class Ended>
void LoadAlongK(const Region& region, bool is_a, int matrix, int outer, int count,
                const std::byte* block, Ended ended, double* out) {
  const MatrixLayout& layout = region.layout;
  const bool contiguous = (layout.order == Order::kRowMajor) == is_a;
  const std::int64_t first = BatchOffset(layout, matrix) + (contiguous ? outer * layout.ld : outer);
  const std::int64_t step = contiguous ? 1 : layout.ld;
  for (int i = 0; i < count && !ended(); i += std::min(kPiece, count - i)) {
    LoadLine(block + region.data, layout.type, first + i * step, step, std::min(kPiece, count - i),
             out + i);
  }
}

// A line along K as Factors.
struct Line {
  Line(std::size_t k, bool with_reaches) : values(k), reaches(with_reaches ? k : 0) {}
  Factors factors() const noexcept { return {values.data(), reaches.data()}; }
  std::vector<double> values, reaches;
};

// The elements of a line, less their zero points, times their scales.
template <class Ended>
void LoadScaled(const Lines& lines, int matrix, int outer, const std::byte* block, Ended ended,
                Line& line) {
  LoadAlongK(lines.values, lines.is_a, matrix, outer, lines.k, block, ended, line.values.data());
  const double floor = SmallestNormalOf(lines.values.layout.type);
  for (std::size_t i = 0; i < line.reaches.size(); ++i) {
    const double value = std::fabs(line.values[i]);
    line.reaches[i] = value == 0 ? 0 : std::max(value, floor);
  }
  if (!lines.scales.present()) return;
  const ScaleGroup group = ScaleGroupOf(lines.quant, lines.outers, lines.k);
  const int groups = (lines.k - 1) / group.k + 1, of_group = outer / group.outer;
  std::vector<double> factors(static_cast<std::size_t>(groups)), zeros(factors.size());
  LoadAlongK(lines.scales, lines.is_a, matrix, of_group, groups, block, ended, factors.data());
  if (lines.zeros.present()) {
    LoadAlongK(lines.zeros, lines.is_a, matrix, of_group, groups, block, ended, zeros.data());
  }
  for (std::size_t i = 0; i < line.values.size(); ++i) {
    const std::size_t g = i / static_cast<std::size_t>(group.k);
    line.values[i] = (line.values[i] - zeros[g]) * factors[g];
    if (!line.reaches.empty()) line.reaches[i] *= std::fabs(factors[g]);
  }
}

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

}  // namespace

Result<Oracle> MakeOracle(const GemmDesc& desc, const Arrangement& at,
                          const ScratchOptions& options, const std::byte* block,
                          const Accumulator& accumulator) {
  const int all_rows = desc.m * desc.num;
  const std::int64_t elements_of_a = std::int64_t{all_rows} * desc.k;
  const bool whole = elements_of_a <= kWholeElementsOfA && elements_of_a <= kWholeProducts / desc.n;
  Oracle oracle;
  oracle.rows = Sample(all_rows, whole ? all_rows : kSampledRows);
  oracle.cols =
      SampleColumns(desc, whole ? desc.n : kSampledOutputs / static_cast<int>(oracle.rows.size()));
  const std::size_t rows = oracle.rows.size(), cols = oracle.cols.size();
  const auto k = static_cast<std::size_t>(desc.k);
  oracle.reference.resize(rows * cols);
  oracle.slack.resize(rows * cols);

  Stop stop(options.stop);
  if (stop()) return stop.status();  // other threads may take all the work
  const Lines of_a{at.a, at.u, at.zero_a, desc.a.quant, true, desc.m, desc.k};
  const Lines of_b{at.b, at.v, at.zero_b, desc.b.quant, false, desc.n, desc.k};
  const ErrorModel model(desc, options, accumulator);
  std::vector<Line> a(rows, Line(k, model.needs_reaches()));
  HostPool().Run(static_cast<int>(rows), [&](int task, int thread) {
    const int row = oracle.rows[static_cast<std::size_t>(task)];
    LoadScaled(
        of_a, row / desc.m, row % desc.m, block, [&] { return stop(thread); },
        a[static_cast<std::size_t>(task)]);
  });

  const auto element = [&](const Region& region, int matrix, int row, int col) {
    const MatrixLayout& layout = region.layout;
    return LoadAsDouble(block + region.data, layout.type,
                        BatchOffset(layout, matrix) + IndexOf(layout, row, col));
  };
  // alpha * A B + beta * C + bias at (row, col) of the product, from the i-th sampled row.
  const auto before_epilogue = [&](std::size_t i, int col, const Line& b, auto ended) -> Bounded {
    const int matrix = oracle.rows[i] / desc.m, row = oracle.rows[i] % desc.m;
    const Sums sums = DotInPieces(a[i].values.data(), b.values.data(), desc.k, ended);
    const double c = at.c.present() ? options.beta * element(at.c, matrix, row, col) : 0;
    const double bias = at.bias.present()
                            ? element(at.bias, 0, 0, desc.bias_axis == Bias::Axis::kN ? col : row)
                            : 0;
    return {options.alpha * sums.value + c + bias,
            model.ProductSlack(a[i].factors(), b.factors(), desc.k, options.alpha, sums) +
                model.AddendSlack(std::fabs(c) + std::fabs(bias))};
  };
  HostPool().Run(static_cast<int>(cols), [&](int task, int thread) {
    const auto ended = [&] { return stop(thread); };
    const auto j = static_cast<std::size_t>(task);
    const int col = oracle.cols[j];
    const bool gated = IsGated(desc.epilogue);
    const GatePair pair = gated ? PairOf(desc.gate_order, desc.n, col) : GatePair{col, col};
    Line b(k, model.needs_reaches()), up(gated ? k : 0, model.needs_reaches());
    int loaded = -1;  // the matrix whose columns are there
    for (std::size_t i = 0; i < rows; ++i) {
      if (ended()) return;
      const int matrix = at.b.layout.num > 1 ? oracle.rows[i] / desc.m : 0;
      if (matrix != loaded) {
        LoadScaled(of_b, matrix, pair.gate, block, ended, b);
        if (gated) LoadScaled(of_b, matrix, pair.up, block, ended, up);
        loaded = matrix;
      }
      Bounded result = before_epilogue(i, pair.gate, b, ended);
      if (gated) result = model.GatedSilu(result, before_epilogue(i, pair.up, up, ended));
      oracle.reference[i * cols + j] = result.value;
      oracle.slack[i * cols + j] = result.slack;
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
