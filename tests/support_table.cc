// Prints docs/support.md's tables from the registry: which kernel families take a format at an
// alignment, on each kind of device that this build has kernels for. tests/support_check.py
// compares.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/gpu_info.h"
#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/registry.h"
#include "culet/types.h"

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32, kF16 = DataType::kFloat16;
constexpr DataType kBf16 = DataType::kBfloat16, kE4m3 = DataType::kFloat8_e4m3;

struct Format {
  const char* name;
  DataType a, b, d;
  QuantDesc quant_a{}, quant_b{};
  Accumulate accumulate = Accumulate::kPromoted;
  Epilogue epilogue = Epilogue::kNone;
};

constexpr QuantDesc kTensor{QuantType::kTensor, 0}, kRow{QuantType::kRow, 0};
constexpr QuantDesc kGroup{QuantType::kK, 128}, kBlock{QuantType::kB, 128};

constexpr Format kFormats[] = {
    {"F32 > F32", kF32, kF32, kF32},
    {"F16 > F16", kF16, kF16, kF16},
    {"F16 > F32", kF16, kF16, kF32},
    {"BF16 > BF16", kBf16, kBf16, kBf16},
    {"BF16 > F32", kBf16, kBf16, kF32},
    {"BF16 > BF16, gated SiLU",
     kBf16,
     kBf16,
     kBf16,
     {},
     {},
     Accumulate::kPromoted,
     Epilogue::kGatedSilu},
    {"F32 x BF16 > F32", kF32, kBf16, kF32},
    {"F32 x F16 > F32", kF32, kF16, kF32},
    {"E4M3 by tensor > BF16", kE4m3, kE4m3, kBf16, kTensor, kTensor},
    {"E4M3 by tensor, fast > BF16", kE4m3, kE4m3, kBf16, kTensor, kTensor, Accumulate::kFast},
    {"E4M3 by row > BF16", kE4m3, kE4m3, kBf16, kRow, kRow},
    {"E4M3 by row, fast > BF16", kE4m3, kE4m3, kBf16, kRow, kRow, Accumulate::kFast},
    {"E4M3 by block > BF16", kE4m3, kE4m3, kBf16, kGroup, kBlock},
    {"E4M3 by block > F16", kE4m3, kE4m3, kF16, kGroup, kBlock},
    {"E4M3 by block > F32", kE4m3, kE4m3, kF32, kGroup, kBlock},
    {"E4M3 by group of both > F32", kE4m3, kE4m3, kF32, kGroup, kGroup},
    {"E4M3 by block > BF16, gated SiLU", kE4m3, kE4m3, kBf16, kGroup, kBlock, Accumulate::kPromoted,
     Epilogue::kGatedSilu},
};

GemmDesc Problem(const Format& format, int arch, int m, int align) {
  GemmDesc p;
  p.arch = arch;
  p.m = m, p.n = 4096, p.k = 4096;
  p.a.type = format.a, p.b.type = format.b, p.d.type = format.d;
  p.a.quant = format.quant_a, p.b.quant = format.quant_b;
  if (format.quant_a.type != QuantType::kNone) p.a.scale_type = p.b.scale_type = kF32;
  p.accumulate = format.accumulate;
  p.epilogue = format.epilogue;
  for (OperandDesc* operand : {&p.a, &p.b, &p.d}) {
    operand->align = static_cast<std::uint8_t>(std::max<int>(align, SizeOf(operand->type)));
    operand->scale_align = static_cast<std::uint8_t>(std::max(align, 4));
  }
  return p;
}

// The families, best first, that take the problem at some number of rows.
std::vector<std::string> Families(const Registry& registry, const Format& format, int arch,
                                  int align) {
  std::vector<std::string> families;
  for (const Kernel* kernel : registry.kernels()) {
    const std::string id = kernel->id();
    const std::string family = id.substr(0, id.find('/'));
    if (family == "onednn" || std::ranges::find(families, family) != families.end()) continue;
    // What the oracle alone takes has no fast kernel.
    if (kernel->desc().backend == Backend::kReference && !families.empty()) continue;
    const bool takes = std::ranges::any_of(std::vector{1, 16, 128, 4096}, [&](int m) {
      return kernel->why(Problem(format, arch, m, align)).ok();
    });
    if (takes) families.push_back(family);
  }
  return families;
}

// Them in one cell; neighbours of one format as f16_{skinny,swap,block}.
// Lines are short: cuda_any takes all that any family of a GPU does and stands where it is alone,
// and sm90_ is left out.
std::string Cell(const std::vector<std::string>& families) {
  std::string text, before;
  for (std::string family : families) {
    if (family == "cuda_any" && families.size() > 1) continue;
    const bool hopper = family.starts_with("sm90_");
    if (hopper) family.erase(0, 5);
    const std::size_t end = family.rfind('_') + 1;
    const std::string start = hopper ? family.substr(0, end) : "";
    if (!start.empty() && start == before) {
      if (text.back() == '}')
        text.pop_back();
      else
        text.insert(text.rfind(start) + end, "{");
      text += "," + family.substr(end) + "}";
    } else {
      text += (text.empty() ? "" : ", ") + family;
    }
    before = start;
  }
  return text.empty() ? "-" : text;
}

void Print(const char* title, const DeviceInfo& device) {
  const auto registry = Registry::Builtin(device, "all");
  if (!registry.ok()) {
    std::puts(registry.status().ToString().c_str());
    return;
  }
  std::printf("## %s\n\n| format | 16 bytes | 8 and 4 | 2 and 1 |\n|---|---|---|---|\n", title);
  for (const Format& format : kFormats) {
    const int least = static_cast<int>(std::min(SizeOf(format.a), SizeOf(format.b)));
    const auto cell = [&](int align) {
      return align < least ? std::string() : Cell(Families(*registry, format, device.arch, align));
    };
    // One answer for both, or each by itself.
    const auto cells = [&](int align) {
      const std::string more = cell(align), less = cell(align / 2);
      if (less.empty() || more == less) return more;
      return std::to_string(align) + ": " + more + "; " + std::to_string(align / 2) + ": " + less;
    };
    std::printf("| %s | %s | %s | %s |\n", format.name, cell(16).c_str(), cells(8).c_str(),
                cells(2).c_str());
  }
  std::puts("");
}

}  // namespace
}  // namespace culet

int main() {
  culet::DeviceInfo host;
  host.name = host.device_class = "cpu";
  host.units = 1;
  host.cache_bytes = 1 << 20;
  host.memory_bytes = 1 << 30;
  culet::Print("CPU", host);
#if CULET_SUPPORT_CUDA
  culet::Print("GPU of compute capability 9.0 (H100, H200)", culet::GpuInfo(900));
  culet::Print("GPU of compute capability 8.9 (L40S, RTX 4090)", culet::GpuInfo(890));
  culet::Print("GPU of compute capability 8.0 (A100)", culet::GpuInfo(800));
#endif
}
