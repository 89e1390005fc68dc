// The problems of the conformance suite.
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "culet/verify.h"
#include "verify/pairwise.h"

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kF16 = DataType::kFloat16;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr DataType kE4m3 = DataType::kFloat8_e4m3;

struct Operands {
  DataType a, b;
};
constexpr Operands kFormats[] = {{kF32, kF32},  {kF16, kF16}, {kBf16, kBf16},
                                 {kF32, kBf16}, {kF32, kF16}, {kE4m3, kE4m3}};
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

// Past the cache blocks of a CPU core and the tiles of a GPU.
struct Shape {
  int m, n, k;
};
constexpr Shape kLarge[] = {{1, 1536, 2048}, {5, 520, 1030}, {16, 1000, 1153}, {129, 640, 1152}};

enum Factor {
  kFormat,
  kOutput,
  kSizeM,
  kSizeN,
  kSizeK,
  kOrderA,
  kOrderB,
  kOrderD,
  kAddC,
  kAddBias,
  kAlignment,
  kOrderScales,
  kFactors
};
enum Addend { kNoAddend, kLikeOutput, kFloatAddend, kAddends };
enum AlignmentLevel { kAligned, kElement, kMixed, kAlignments };

Order OrderOf(int level) { return level == 0 ? Order::kRowMajor : Order::kColMajor; }

// `aligned` operands lie on 16 bytes, others on their element size alone.
std::uint8_t Align(DataType type, bool aligned) {
  return aligned ? 16 : static_cast<std::uint8_t>(SizeOf(type));
}

GemmDesc MakeProblem(const std::array<int, kFactors>& row, const Shape& shape, int arch) {
  GemmDesc desc;
  desc.arch = arch;
  desc.type_a = kFormats[row[kFormat]].a;
  desc.type_b = kFormats[row[kFormat]].b;
  desc.type_d = kOutputs[row[kOutput]];
  desc.m = shape.m;
  desc.n = shape.n;
  desc.k = shape.k;
  desc.order_a = OrderOf(row[kOrderA]);
  desc.order_b = Transposed(OrderOf(row[kOrderB]));  // level 0 is what weights have
  desc.order_d = OrderOf(row[kOrderD]);
  desc.order_c = desc.order_d;  // as Describe leaves it without a C

  const bool all = row[kAlignment] == kAligned, some = row[kAlignment] == kMixed;
  desc.align_a = Align(desc.type_a, all);
  desc.align_b = Align(desc.type_b, all || some);
  desc.align_d = Align(desc.type_d, all);
  if (row[kAddC] != kNoAddend) {
    desc.type_c = row[kAddC] == kLikeOutput ? desc.type_d : kF32;
    // Once like D, so that C may be D; once the other way round.
    if (row[kAddC] == kFloatAddend) desc.order_c = Transposed(desc.order_d);
    desc.align_c = Align(desc.type_c, all);
  }
  if (row[kAddBias] != kNoAddend) {
    desc.type_bias = row[kAddBias] == kLikeOutput ? desc.type_d : kF32;
    desc.bias_axis = row[kAddBias] == kLikeOutput ? Bias::Axis::kN : Bias::Axis::kM;
  }
  if (desc.type_a == kE4m3) {
    desc.quant_a = {QuantType::kK, 128};
    desc.quant_b = {QuantType::kB, 128};
    desc.type_u = desc.type_v = kF32;
    desc.order_u = OrderOf(row[kOrderScales] % 2);
    desc.order_v = Transposed(OrderOf(row[kOrderScales] / 2));
    desc.align_u = Align(kF32, all);
    desc.align_v = Align(kF32, all || some);
  }
  return desc;
}

}  // namespace

std::vector<GemmDesc> ConformanceProblems(int arch, bool quick) {
  const std::span<const int> m = quick ? std::span<const int>(kQuickM) : kM;
  const std::span<const int> n = quick ? std::span<const int>(kQuickN) : kN;
  const std::span<const int> k = quick ? std::span<const int>(kQuickK) : kK;
  std::array<int, kFactors> levels{};
  levels[kFormat] = std::size(kFormats);
  levels[kOutput] = std::size(kOutputs);
  levels[kSizeM] = static_cast<int>(m.size());
  levels[kSizeN] = static_cast<int>(n.size());
  levels[kSizeK] = static_cast<int>(k.size());
  levels[kOrderA] = levels[kOrderB] = levels[kOrderD] = 2;
  levels[kAddC] = levels[kAddBias] = kAddends;
  levels[kAlignment] = kAlignments;
  levels[kOrderScales] = 4;

  std::vector<GemmDesc> problems;
  std::set<GemmDesc> known;  // absent scales make some rows equal
  for (const std::vector<int>& levels_of_row : PairwiseRows(levels)) {
    std::array<int, kFactors> row{};
    std::ranges::copy(levels_of_row, row.begin());
    const GemmDesc desc = MakeProblem(row, {m[row[kSizeM]], n[row[kSizeN]], k[row[kSizeK]]}, arch);
    if (known.insert(desc).second) problems.push_back(desc);
  }
  if (!quick) {
    for (int format = 0; format < static_cast<int>(std::size(kFormats)); ++format) {
      for (int i = 0; i < static_cast<int>(std::size(kLarge)); ++i) {
        std::array<int, kFactors> row{};
        row[kFormat] = format;
        row[kOutput] = (format + i) % static_cast<int>(std::size(kOutputs));
        row[kAlignment] = i % 2 == 0 ? kAligned : kElement;
        problems.push_back(MakeProblem(row, kLarge[i], arch));
      }
    }
  }
  return problems;
}

}  // namespace culet
