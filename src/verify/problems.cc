// The problems of the conformance suite.
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "culet/verify.h"
#include "verify/pairwise.h"
#include "verify/special_problems.h"

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kF16 = DataType::kFloat16;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr DataType kE4m3 = DataType::kFloat8_e4m3;

struct Operands {
  DataType a, b;
  QuantDesc quant_a, quant_b;
};
constexpr Operands kFormats[] = {
    {kF32, kF32, {}, {}},
    {kF16, kF16, {}, {}},
    {kBf16, kBf16, {}, {}},
    {kF32, kBf16, {}, {}},
    {kF32, kF16, {}, {}},
    {kE4m3, kE4m3, {QuantType::kK, 128}, {QuantType::kB, 128}},
    {kE4m3, kE4m3, {QuantType::kRow}, {QuantType::kRow}},
    {kE4m3, kE4m3, {QuantType::kTensor}, {QuantType::kTensor}},
    {kE4m3, kE4m3, {QuantType::kK, 128}, {QuantType::kK, 128}},  // of a weight's gradient
};
// Those of large models: what matrix units take.
constexpr int kFp8Block = 5;
constexpr int kModelFormats[] = {1, 2, 6, 7};
constexpr DataType kOutputs[] = {kF32, kF16, kBf16};

// m around the rows that register tiles cover; n and k around vectors, tiles and the scale block of
// 128, with one, two and three blocks, whole and partial.
constexpr int kM[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129};
constexpr int kN[] = {1,  2,  3,  7,   8,   15,  16,  17,  31,  33,
                      63, 64, 65, 127, 128, 129, 255, 256, 257, 300};
constexpr int kK[] = {1,  2,  3,  7,   8,   15,  16,  17,  33,  63,
                      64, 65, 96, 127, 128, 129, 255, 256, 257, 385};
constexpr int kQuickM[] = {1, 3, 16, 17, 33};
constexpr int kQuickN[] = {1, 16, 17, 65, 129};
constexpr int kQuickK[] = {1, 16, 17, 128, 129, 256, 257};

// The products of a model, as matrix units take them: rows of 16 bytes, BF16 (or F32) output,
// nothing added. FP8 with blocks of scales gets all of them, the other formats the quick ones. n
// and k step by what TMA and vectors need, past the tiles of a GPU.
constexpr int kPlainM[] = {1, 3, 8, 16, 17, 32, 64, 65, 127, 128, 129, 200, 256, 257, 385};
constexpr int kPlainN[] = {8, 16, 24, 64, 72, 128, 136, 192, 256, 320, 384, 520};
constexpr int kPlainK[] = {16, 32, 112, 128, 144, 256, 272, 384, 512, 656};
constexpr int kQuickPlainM[] = {1, 16, 17, 64, 129, 257};
constexpr int kQuickPlainN[] = {16, 136, 256};
constexpr int kQuickPlainK[] = {16, 128, 272};

// Few rows, and outputs enough that their relative error means something.
constexpr int kFewM[] = {5, 8};
constexpr int kWideN[] = {2112, 4104};
constexpr int kWideK[] = {656, 1040};

// Past the cache blocks of a CPU core and the tiles of a GPU.
struct Shape {
  int m, n, k;
};
constexpr Shape kLarge[] = {{1, 1536, 2048}, {5, 520, 1030}, {16, 1000, 1153}, {129, 640, 1152}};

// On a GPU every multiprocessor has tiles after tiles, also of those that reach beyond D, whose
// rows end within 16 bytes: a bulk store would write all of these.
constexpr Shape kManyEnds[] = {{2060, 4100, 80}, {2060, 4097, 80}};

// Rows that lie on 8 and on 4 bytes, and no more: neither what TMA loads nor what no copy of
// several bytes does.
constexpr Shape kBetween[] = {{1, 136, 272},   {16, 264, 1036},  {17, 72, 136},
                              {64, 520, 392},  {65, 300, 260},   {129, 128, 129},
                              {200, 385, 640}, {257, 1000, 127}, {1030, 2060, 268}};
constexpr std::size_t kQuickBetween = 5;
constexpr int kBetweenFormats[] = {1, 2, 5, 6};  // what tensor cores take

// What few kernels take and the references must: unscaled E4M3, mixed types, other groups, scale
// types and granularities, a budget of multiprocessors (threads).
struct Uncommon {
  DataType a, b;
  QuantDesc quant_a, quant_b;
  DataType scales = kF32;
  int sm_budget = 0;
};
constexpr Uncommon kUncommon[] = {
    {kE4m3, kE4m3, {}, {}},
    {kE4m3, kE4m3, {QuantType::kK, 128}, {}},
    {kE4m3, kE4m3, {QuantType::kB, 128}, {QuantType::kK, 256}},
    {kE4m3, kE4m3, {QuantType::kK, 128}, {QuantType::kB, 128}, kF32, 2},
    {kE4m3, kE4m3, {QuantType::kK, 128}, {QuantType::kB, 128}, kBf16},
    {kE4m3, kE4m3, {QuantType::kK, 48}, {QuantType::kB, 64}},
    {kBf16, kE4m3, {}, {QuantType::kB, 128}},
    {kE4m3, kF16, {}, {}},
    {kF16, kBf16, {}, {}, kF32, 3},
    {kE4m3, kE4m3, {QuantType::kRow}, {QuantType::kTensor}},
    {kE4m3, kE4m3, {QuantType::kTensor}, {QuantType::kB, 128}, kBf16},
    {kF16, kF16, {QuantType::kTensor}, {QuantType::kRow}},
    {kBf16, kBf16, {QuantType::kK, 64}, {QuantType::kK, 32}, kF16},
};
constexpr Shape kUncommonShapes[] = {
    {1, 64, 128}, {3, 17, 129}, {17, 200, 640}, {65, 33, 257}, {130, 129, 515}};

enum Factor {
  kFormat,
  kOutput,
  kSizeM,
  kSizeN,
  kSizeK,
  kOrders,
  kAddC,
  kAddBias,
  kAlignment,
  kOrderScales,
  kFactors
};
enum Addend { kNoAddend, kLikeOutput, kFloatAddend, kAddends };
enum AlignmentLevel { kAligned, kElement, kMixed, kAlignments };

Order OrderOf(int level) { return level == 0 ? Order::kRowMajor : Order::kColMajor; }

using Row = std::array<int, kFactors>;  // a level of each factor

// `aligned` operands lie on 16 bytes, others on their element size alone.
std::uint8_t Align(DataType type, bool aligned) {
  return aligned ? 16 : static_cast<std::uint8_t>(SizeOf(type));
}

GemmDesc MakeProblem(const Row& row, const Shape& shape, int arch) {
  GemmDesc desc;
  desc.arch = arch;
  desc.a.type = kFormats[row[kFormat]].a;
  desc.b.type = kFormats[row[kFormat]].b;
  desc.d.type = kOutputs[row[kOutput]];
  desc.m = shape.m;
  desc.n = shape.n;
  desc.k = shape.k;
  // Level 0 is the usual: activations and outputs row by row, weights with k contiguous.
  desc.a.order = OrderOf(row[kOrders] & 1);
  desc.b.order = Transposed(OrderOf(row[kOrders] >> 1 & 1));
  desc.d.order = OrderOf(row[kOrders] >> 2);
  desc.c.order = desc.d.order;  // as Describe leaves it without a C

  const bool all = row[kAlignment] == kAligned, some = row[kAlignment] == kMixed;
  desc.a.align = Align(desc.a.type, all);
  desc.b.align = Align(desc.b.type, all || some);
  desc.d.align = Align(desc.d.type, all);
  if (row[kAddC] != kNoAddend) {
    desc.c.type = row[kAddC] == kLikeOutput ? desc.d.type : kF32;
    // Once like D, so that C may be D; once the other way round.
    if (row[kAddC] == kFloatAddend) desc.c.order = Transposed(desc.d.order);
    desc.c.align = Align(desc.c.type, all);
  }
  if (row[kAddBias] != kNoAddend) {
    desc.type_bias = row[kAddBias] == kLikeOutput ? desc.d.type : kF32;
    desc.bias_axis = row[kAddBias] == kLikeOutput ? Bias::Axis::kN : Bias::Axis::kM;
  }
  desc.a.quant = kFormats[row[kFormat]].quant_a;
  desc.b.quant = kFormats[row[kFormat]].quant_b;
  if (desc.a.quant.type != QuantType::kNone) {
    desc.a.scale_type = desc.b.scale_type = kF32;
    desc.a.scale_order = OrderOf(row[kOrderScales] % 2);
    desc.b.scale_order = Transposed(OrderOf(row[kOrderScales] / 2));
    desc.a.scale_align = Align(kF32, all);
    desc.b.scale_align = Align(kF32, all || some);
  }
  return desc;
}

// `variation` chooses output, orders, alignment and addends.
GemmDesc MakeUncommon(const Uncommon& format, const Shape& shape, int variation, int arch) {
  Row row{};
  row[kOutput] = variation % static_cast<int>(std::size(kOutputs));
  row[kOrders] = variation % 8;
  row[kAddC] = variation / 2 % kAddends;
  row[kAddBias] = variation / 3 % kAddends;
  row[kAlignment] = variation / 4 % kAlignments;
  GemmDesc desc = MakeProblem(row, shape, arch);
  const bool aligned = row[kAlignment] == kAligned;
  desc.a.type = format.a;
  desc.b.type = format.b;
  desc.a.align = Align(format.a, aligned);
  desc.b.align = Align(format.b, aligned);
  desc.a.quant = format.quant_a;
  desc.b.quant = format.quant_b;
  if (format.quant_a.type != QuantType::kNone) {
    desc.a.scale_type = format.scales;
    desc.a.scale_order = OrderOf(variation % 2);
    desc.a.scale_align = Align(format.scales, aligned);
  }
  if (format.quant_b.type != QuantType::kNone) {
    desc.b.scale_type = format.scales;
    desc.b.scale_order = OrderOf(variation / 2 % 2);
    desc.b.scale_align = Align(format.scales, aligned);
  }
  desc.sm_budget = format.sm_budget;
  return desc;
}

// Operands on `bytes`; `variation` chooses output, orders of scales, addends and whether A alone, B
// alone or all of them lie so.
GemmDesc MakeBetween(int format, const Shape& shape, std::uint8_t bytes, int variation, int arch) {
  Row row{};
  row[kFormat] = format;
  row[kOutput] = variation % static_cast<int>(std::size(kOutputs));
  row[kAddC] = variation / 2 % kAddends;
  row[kAddBias] = variation / 3 % kAddends;
  row[kOrderScales] = variation % 4;
  GemmDesc desc = MakeProblem(row, shape, arch);
  const auto lower = [&](OperandDesc& operand) { operand.align = bytes; };
  if (variation % 3 != 1) lower(desc.a);
  if (variation % 3 != 2) lower(desc.b);
  if (variation % 3 == 0) lower(desc.d);
  return desc;
}

struct Sizes {
  std::span<const int> m, n, k;
};

// Every pair of levels of all factors, with the first `orders` of the 8 combinations of orders.
template <class Add>
void AddPairs(const Sizes& sizes, int orders, int arch, Add add) {
  Row levels{};
  levels[kFormat] = std::size(kFormats);
  levels[kOutput] = std::size(kOutputs);
  levels[kSizeM] = static_cast<int>(sizes.m.size());
  levels[kSizeN] = static_cast<int>(sizes.n.size());
  levels[kSizeK] = static_cast<int>(sizes.k.size());
  levels[kOrders] = orders;
  levels[kAddC] = levels[kAddBias] = kAddends;
  levels[kAlignment] = kAlignments;
  levels[kOrderScales] = 4;
  for (const std::vector<int>& found : PairwiseRows(levels)) {
    Row row{};
    std::ranges::copy(found, row.begin());
    add(MakeProblem(row, {sizes.m[row[kSizeM]], sizes.n[row[kSizeN]], sizes.k[row[kSizeK]]}, arch));
  }
}

// Every pair of sizes and orders of scales.
template <class Add>
void AddPlain(const Sizes& sizes, int format, DataType output, int arch, Add add) {
  Row levels{};
  levels.fill(1);
  levels[kSizeM] = static_cast<int>(sizes.m.size());
  levels[kSizeN] = static_cast<int>(sizes.n.size());
  levels[kSizeK] = static_cast<int>(sizes.k.size());
  levels[kOrderScales] = 4;
  for (const std::vector<int>& found : PairwiseRows(levels)) {
    Row row{};
    std::ranges::copy(found, row.begin());
    row[kFormat] = format;
    row[kOutput] = static_cast<int>(std::ranges::find(kOutputs, output) - std::begin(kOutputs));
    add(MakeProblem(row, {sizes.m[row[kSizeM]], sizes.n[row[kSizeN]], sizes.k[row[kSizeK]]}, arch));
  }
}

}  // namespace

std::vector<GemmDesc> ConformanceProblems(int arch, bool quick) {
  const Sizes edges{kQuickM, kQuickN, kQuickK};
  const Sizes all{kM, kN, kK};
  std::vector<GemmDesc> problems;
  std::set<GemmDesc> known;
  const auto add = [&](const GemmDesc& desc) {
    if (known.insert(desc).second) problems.push_back(desc);
  };
  // The orders that every engine uses get all pairs of sizes to themselves: many kernels take no
  // others, and would see a fraction of the pairs.
  AddPairs(quick ? edges : all, 1, arch, add);
  AddPairs(edges, 8, arch, add);
  const Sizes plain_edges{kQuickPlainM, kQuickPlainN, kQuickPlainK};
  const Sizes plain{kPlainM, kPlainN, kPlainK};
  AddPlain(quick ? plain_edges : plain, kFp8Block, kBf16, arch, add);
  AddPlain(plain_edges, kFp8Block, kF32, arch, add);
  // Kernels that sum all of K in an accumulator of few bits take no others.
  const auto add_fast = [&](GemmDesc desc) {
    desc.accumulate = Accumulate::kFast;
    add(desc);
  };
  for (const int format : kModelFormats) {
    AddPlain(plain_edges, format, kBf16, arch, add);
    if (kFormats[format].a == DataType::kFloat8_e4m3)
      AddPlain(plain_edges, format, kBf16, arch, add_fast);
  }
  for (int format = 0; arch != 0 && format < static_cast<int>(std::size(kFormats)); ++format) {
    for (const Shape& shape : kManyEnds) {
      Row row{};
      row[kFormat] = format;
      row[kOutput] = shape.n % 2 == 0 ? 2 : 1 + format % 2;  // BF16, and of F16 no less
      add(MakeProblem(row, shape, arch));
    }
  }
  for (const int format : kBetweenFormats) {
    const std::size_t count = quick ? kQuickBetween : std::size(kBetween);
    for (std::size_t i = 0; i < count; ++i) {
      const int variation = format + static_cast<int>(i) * 7;
      for (const std::uint8_t bytes : {8, 4}) {
        if (arch == 0 && i + 1 == std::size(kBetween)) continue;  // for a GPU's waves of tiles
        add(MakeBetween(format, kBetween[i], bytes, variation + bytes / 8, arch));
      }
    }
  }
  for (const GemmDesc& desc : SpecialProblems(arch, quick)) add(desc);
  if (quick) return problems;
  const Sizes few_rows{kFewM, kWideN, kWideK};
  AddPlain(few_rows, kFp8Block, kBf16, arch, add);
  AddPlain(few_rows, kFp8Block, kF32, arch, add);
  for (int i = 0; i < static_cast<int>(std::size(kUncommon)); ++i) {
    for (int j = 0; j < static_cast<int>(std::size(kUncommonShapes)); ++j) {
      add(MakeUncommon(kUncommon[i], kUncommonShapes[j], 3 * i + j, arch));
    }
  }
  for (int format = 0; format < static_cast<int>(std::size(kFormats)); ++format) {
    for (int i = 0; i < static_cast<int>(std::size(kLarge)); ++i) {
      Row row{};
      row[kFormat] = format;
      row[kOutput] = (format + i) % static_cast<int>(std::size(kOutputs));
      row[kAlignment] = i % 2 == 0 ? kAligned : kElement;
      add(MakeProblem(row, kLarge[i], arch));
    }
  }
  return problems;
}

}  // namespace culet
