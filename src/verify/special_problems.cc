#include "verify/special_problems.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kF16 = DataType::kFloat16;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr DataType kE4m3 = DataType::kFloat8_e4m3;

struct Shape {
  int m, n, k;
};
struct Format {
  DataType type;
  QuantDesc quant_a, quant_b;
};
constexpr Format kFormats[] = {{kBf16, {}, {}},
                               {kE4m3, {QuantType::kK, 128}, {QuantType::kB, 128}},
                               {kF16, {}, {}},
                               {kE4m3, {QuantType::kRow}, {QuantType::kRow}},
                               {kF32, {}, {}}};

// Rows of 16 bytes come first; n of gated products is a multiple of 16.
constexpr Shape kGatedShapes[] = {
    {1, 32, 128},  {17, 256, 272}, {129, 512, 144}, {3, 16, 7},       {8, 1024, 656},
    {64, 272, 48}, {65, 640, 384}, {257, 512, 128}, {200, 768, 1040}, {5, 48, 129}};
constexpr std::size_t kQuickGated = 4;
// More tiles than a GPU has multiprocessors: persistent kernels take several each.
constexpr Shape kManyTiles = {1030, 4112, 272};

// Gate's columns followed by up's, of the formats that come first: n / 2 is a multiple of a block
// of 128 columns, or there is a block of both, whose scale a kernel must take for both or refuse.
constexpr Shape kHalvesShapes[] = {{17, 256, 272},    {65, 272, 384},  {129, 512, 144},
                                   {1, 1024, 656},    {257, 640, 128}, {8, 768, 128},
                                   {200, 2048, 1040}, {3, 48, 7}};
constexpr std::size_t kQuickHalves = 2;
constexpr std::size_t kHalvesFormats = 2;
constexpr Shape kManyHalves = {1030, 4096, 272};

constexpr Shape kBatchShapes[] = {{1, 64, 128}, {7, 33, 40}, {33, 136, 144}, {65, 256, 272}};
constexpr std::size_t kQuickBatches = 2;

// `aligned` operands lie on 16 bytes, others on their element size alone.
std::uint8_t Align(DataType type, bool aligned) {
  return static_cast<std::uint8_t>(aligned || SizeOf(type) == 0 ? 16 : SizeOf(type));
}

GemmDesc MakeProblem(const Format& format, const Shape& shape, bool aligned, int arch) {
  GemmDesc desc;
  desc.arch = arch;
  desc.a.type = desc.b.type = format.type;
  desc.d.type = kBf16;
  desc.m = shape.m;
  desc.n = shape.n;
  desc.k = shape.k;
  desc.a.align = desc.b.align = Align(format.type, aligned);
  desc.d.align = Align(kBf16, aligned);
  desc.a.quant = format.quant_a;
  desc.b.quant = format.quant_b;
  if (format.quant_a.type != QuantType::kNone) {
    desc.a.scale_type = desc.b.scale_type = kF32;
    desc.a.scale_align = desc.b.scale_align = Align(kF32, aligned);
  }
  return desc;
}

// `variation` chooses output, orders of scales and what is added.
void MakeGated(Epilogue epilogue, int variation, bool aligned, GemmDesc& desc) {
  desc.epilogue = epilogue;
  if (epilogue == Epilogue::kGatedSiluQuant) {
    desc.d.type = kE4m3;
    desc.d.quant = {QuantType::kK, 128};
    desc.d.scale_type = kF32;
    desc.d.scale_order = variation % 2 == 0 ? Order::kRowMajor : Order::kColMajor;
    desc.d.scale_align = Align(kF32, aligned);
  } else {
    constexpr std::array kOutputs = {kBf16, kBf16, kF32, kF16};
    desc.d.type = kOutputs[static_cast<std::size_t>(variation) % kOutputs.size()];
  }
  desc.d.align = Align(desc.d.type, aligned);
  if (variation % 3 == 1) desc.type_bias = variation % 2 == 0 ? kF32 : kBf16;
  if (variation % 4 == 3) {
    desc.c.type = kBf16;
    desc.c.align = Align(kBf16, aligned);
  }
  if (desc.a.scale_type != DataType::kNull && variation % 2 == 1) {
    desc.a.scale_order = Order::kColMajor;
  }
}

void AddGated(int arch, bool quick, std::vector<GemmDesc>& problems) {
  const auto add = [&](const Format& format, const Shape& shape, GateOrder order, int variation,
                       bool aligned) {
    for (const Epilogue epilogue : {Epilogue::kGatedSilu, Epilogue::kGatedSiluQuant}) {
      GemmDesc desc = MakeProblem(format, shape, aligned, arch);
      MakeGated(epilogue, variation, aligned, desc);
      desc.gate_order = order;
      problems.push_back(desc);
    }
  };
  const auto add_all = [&](std::size_t formats, const Shape& many, std::span<const Shape> shapes,
                           GateOrder order) {
    for (std::size_t f = 0; f < formats && arch != 0; ++f) add(kFormats[f], many, order, 0, true);
    for (std::size_t f = 0; f < formats; ++f) {
      for (std::size_t s = 0; s < shapes.size(); ++s) {
        const int variation = static_cast<int>(f + s);
        // Nothing added and the usual output, which most kernels take, in every other shape.
        add(kFormats[f], shapes[s], order, s % 2 == 0 ? 0 : variation, variation % 5 != 4);
      }
    }
  };
  const std::span<const Shape> eights = kGatedShapes, halves = kHalvesShapes;
  add_all(std::size(kFormats), kManyTiles, quick ? eights.first(kQuickGated) : eights,
          GateOrder::kEights);
  add_all(kHalvesFormats, kManyHalves, quick ? halves.first(kQuickHalves) : halves,
          GateOrder::kHalves);
}

void AddBatches(int arch, bool quick, std::vector<GemmDesc>& problems) {
  const std::size_t shapes = quick ? kQuickBatches : std::size(kBatchShapes);
  for (std::size_t f = 0; f < std::size(kFormats); ++f) {
    for (std::size_t s = 0; s < shapes; ++s) {
      const std::size_t variation = f + s;
      const bool aligned = variation % 3 != 2;
      GemmDesc desc = MakeProblem(kFormats[f], kBatchShapes[s], aligned, arch);
      desc.num = desc.a.num = desc.b.num = desc.d.num = 3;
      if (variation % 4 == 1) desc.b.num = 1;  // a weight that all share
      if (variation % 4 == 2) desc.d.order = desc.c.order = Order::kColMajor;
      if (variation % 4 == 3) {
        desc.c.type = kF32;
        desc.c.align = Align(kF32, aligned);
        desc.c.num = s % 2 == 0 ? 3 : 1;
        desc.type_bias = kBf16;
      }
      problems.push_back(desc);
    }
  }
}

// Weights with zero points, of 4 bits and of 8; groups whole and cut off.
void AddZeroPoints(int arch, std::vector<GemmDesc>& problems) {
  struct Weight {
    DataType a, b;
    QuantDesc quant_a, quant_b;
    DataType scales, zeros;
  };
  constexpr Weight kWeights[] = {
      {kBf16, DataType::kUint4, {}, {QuantType::kK, 32}, kBf16, DataType::kUint4},
      {kF16, DataType::kInt4, {}, {QuantType::kK, 128}, kF16, DataType::kNull},
      {kBf16, DataType::kUint4, {}, {QuantType::kRow}, kF32, kF16},
      {kBf16, DataType::kFloat4_e2m1, {}, {QuantType::kK, 32}, kF16, DataType::kNull},
      {kF32, DataType::kInt8, {}, {QuantType::kK, 16}, kF32, DataType::kNull},
      {kBf16, kE4m3, {}, {QuantType::kRow}, kF32, DataType::kNull},
      {kBf16, kE4m3, {}, {QuantType::kB, 128}, kBf16, DataType::kNull},
      {kE4m3, kE4m3, {QuantType::kK, 16}, {QuantType::kRow}, kF32, kF16},
  };
  for (const Weight& weight : kWeights) {
    for (const Shape& shape : {Shape{1, 64, 256}, Shape{17, 34, 144}}) {
      GemmDesc desc = MakeProblem({weight.a, {}, {}}, shape, true, arch);
      desc.b.type = weight.b;
      desc.a.quant = weight.quant_a;
      desc.b.quant = weight.quant_b;
      desc.b.scale_type = weight.scales;
      desc.b.zero_type = weight.zeros;
      if (weight.quant_a.type != QuantType::kNone) {
        desc.a.scale_type = kF32;
        desc.a.zero_type = weight.zeros;
      }
      problems.push_back(desc);
      // The CPU's kernels of such weights have twins that take them as A.
      const bool four = weight.b == DataType::kInt4;
      if (arch == 0 && !four && weight.a != kE4m3) problems.push_back(Transposed(desc));
    }
  }
}

}  // namespace

std::vector<GemmDesc> SpecialProblems(int arch, bool quick) {
  std::vector<GemmDesc> problems;
  AddGated(arch, quick, problems);
  AddBatches(arch, quick, problems);
  AddZeroPoints(arch, problems);
  return problems;
}

}  // namespace culet
