// The compiler's report on every CUDA kernel of the library: nothing spilled, no setmaxnreg
// ignored, no wgmma serialised, and the registers and shared memory that KernelInfo states. Needs
// no GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gpu_info.h"
#include "kernels/catalog.h"
#include "kernels/cuda/any_shape.h"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"
#include "kernels/sm90/skinny/fused.h"
#include "kernels/sm90/swap/swap.h"
#include "ptxas_report.h"

namespace culet {
namespace {

// Host function of a kernel -> its mangled name on the device.
std::map<const void*, std::string>& RegisteredKernels() {
  static std::map<const void*, std::string> kernels;
  return kernels;
}

}  // namespace
}  // namespace culet

// nvcc's host code calls this for each kernel before main; the linker is told to send it here
// first.
extern "C" void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*,
                                              uint3*, dim3*, dim3*, int*);
extern "C" void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device,
                                              const char* name, int limit, uint3* tid, uint3* bid,
                                              dim3* block, dim3* grid, int* size) {
  culet::RegisteredKernels()[host] = name;
  __real___cudaRegisterFunction(handle, host, device, name, limit, tid, bid, block, grid, size);
}

namespace culet {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kHopper = 900;

// The compiled function behind a kernel of the registry, and what its launches take.
struct Entry {
  const void* function = nullptr;
  int threads = 0;
  int dynamic_smem_bytes = 0;
  const void* also = nullptr;  // another function of the kernel's
};

std::map<std::string, Entry> HopperEntries() {
  std::map<std::string, Entry> entries;
  for (const sm90::BlockKernel& kernel : sm90::BlockKernels()) {
    entries[kernel.id] = {kernel.function, kernel.threads, kernel.smem_bytes, kernel.of_halves};
    // Its twin has a small kernel behind it.
    if (kernel.epilogue == sm90::EpilogueKind::kGated)
      entries[kernel.id + "/quantise"] = entries[kernel.id];
    entries[kernel.id + "/padded"] = entries[kernel.id];  // where it has a twin with one in front
  }
  constexpr int kManyBlocks = 1 << 20;
  for (const sm90::SwapKernel& kernel : sm90::SwapKernels()) {
    for (int residency = 1; residency <= sm90::kSwapMaxResidency; ++residency) {
      if ((kernel.instance.residencies >> residency & 1) == 0) continue;
      const int stages = sm90::SwapStages(kernel, kManyBlocks, 1, residency);
      const std::string id = kernel.Id(residency);
      entries[id] = {kernel.function, kernel.threads, kernel.layout.Total(stages, 1)};
      if (kernel.epilogue == sm90::EpilogueKind::kGated) entries[id + "/quantise"] = entries[id];
      entries[id + "/padded"] = entries[id];
    }
  }
  for (const sm90::GroupedSwapKernel& kernel : sm90::GroupedSwapKernels()) {
    entries[kernel.id] = {kernel.function, kernel.threads, kernel.smem_bytes};
  }
  for (const sm90::GroupedSkinnyKernel& kernel : sm90::GroupedSkinnyKernels()) {
    constexpr int kWarps = 4;
    entries[kernel.Id()] = {kernel.function, 32 * kWarps, kWarps * kernel.warp_bytes};
  }
  for (const sm90::BlockKernel& kernel : sm90::GroupedBlocks()) {
    entries[kernel.id] = {kernel.function, kernel.threads, kernel.smem_bytes};
  }
  for (const sm90::SkinnyKernel& kernel : sm90::SkinnyKernels()) {
    const int warps = sm90::SkinnyRowGroups(1);
    constexpr int kMost = sm90::kSkinnyTokens;
    const bool rehearses = sm90::SkinnyRehearses(kernel, warps, kMost, false);
    entries[kernel.Id()] = {kernel.function, 32 * warps, kernel.SmemBytes(warps, kMost, rehearses)};
  }
  const auto add_any_shape = [&](const any_shape::CompiledKernel& kernel) {
    entries["cuda_any/" + std::string(kernel.id)] = {kernel.function, kernel.threads,
                                                     kernel.smem_bytes};
  };
  for (const any_shape::CompiledKernel& kernel : any_shape::MmaKernels()) add_any_shape(kernel);
  add_any_shape(any_shape::SimtKernel());
  for (const cuda_ops::CodeProductKernel* kernel : cuda_ops::CodeProductKernels()) {
    entries["cuda_codes/" + std::string(kernel->id)] = {
        reinterpret_cast<const void*>(kernel->function), 32 * cuda_ops::kCodeProductWarps,
        kernel->MostSmemBytes()};
  }
  entries["cuda_any/any/64x64/whole"] = entries["cuda_any/any/64x64"];
  return entries;
}

// CTAs that a Hopper multiprocessor holds: CUDA C++ programming guide, "Compute Capabilities".
int ResidentCtas(int threads, int registers, int smem_bytes) {
  constexpr int kRegisters = 65536, kRegisterUnit = 256, kSmem = 228 * 1024, kSmemReserved = 1024;
  constexpr int kThreads = 2048, kCtas = 32, kPartitions = 4;
  const int warps = (threads + 31) / 32;
  const int warp_registers = (registers * 32 + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  const int most_warps = kRegisters / kPartitions / warp_registers * kPartitions;
  return std::min(
      {most_warps / warps, kSmem / (smem_bytes + kSmemReserved), kThreads / threads, kCtas});
}

// All reports of the build, one after the other.
std::string ReadReports() {
  std::ifstream objects(CULET_CUDA_OBJECTS);
  std::string text;
  for (std::string object; std::getline(objects, object);) {
    std::ifstream report(object + ".report");
    EXPECT_TRUE(report) << object << ".report is missing; build the library again";
    text.append(std::istreambuf_iterator<char>(report), {});
  }
  return text;
}

const PtxasReport& Report() {
  static const PtxasReport report = [] {
    auto parsed = ParsePtxasReport(ReadReports());
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return parsed.ok() ? *parsed : PtxasReport{};
  }();
  return report;
}

// What is wrong with the kernels of a report, one sentence each.
std::vector<std::string> Faults(const PtxasReport& report) {
  std::vector<std::string> faults = report.advisories;
  for (const KernelResources& kernel : report.kernels) {
    const std::string name = kernel.entry + " for " + kernel.arch;
    if (kernel.spill_bytes > 0)
      faults.push_back(name + " spills " + std::to_string(kernel.spill_bytes) + " bytes");
    if (kernel.stack_bytes > 0)
      faults.push_back(name + " keeps " + std::to_string(kernel.stack_bytes) + " bytes on a stack");
  }
  return faults;
}

// Where KernelInfo and the compiler disagree.
std::vector<std::string> Differences(const KernelInfo& info, const Entry& entry,
                                     const KernelResources& compiled) {
  std::vector<std::string> found;
  const auto differ = [&](const char* what, int stated, int real) {
    if (stated == real) return;
    found.push_back(info.name + ": " + what + " " + std::to_string(stated) + " in KernelInfo, " +
                    std::to_string(real) + " in truth");
  };
  const int smem = entry.dynamic_smem_bytes + compiled.static_smem_bytes;
  differ("registers", info.registers, compiled.registers);
  differ("shared memory", info.dynamic_smem_size, smem);
  differ("CTAs a multiprocessor", info.max_active_ctas,
         std::min(info.max_active_ctas, ResidentCtas(entry.threads, compiled.registers, smem)));
  return found;
}

const KernelResources* Find(const PtxasReport& report, const std::string& entry) {
  const auto found = std::ranges::find_if(report.kernels, [&](const KernelResources& kernel) {
    return kernel.entry == entry && kernel.arch.starts_with("sm_90");
  });
  return found == report.kernels.end() ? nullptr : &*found;
}

TEST(CudaResources, NoKernelSpillsOrLosesItsInstructions) {
  EXPECT_THAT(Faults(Report()), IsEmpty());
}

TEST(CudaResources, EveryLinkedKernelIsInTheReports) {
  EXPECT_GT(RegisteredKernels().size(), 30u);
  for (const auto& [host, name] : RegisteredKernels())
    EXPECT_NE(Find(Report(), name), nullptr) << name;
}

TEST(CudaResources, KernelInfoTellsWhatTheCompilerMade) {
  const std::map<std::string, Entry> entries = HopperEntries();
  int compared = 0;
  for (const auto& kernel : BuiltinKernels(GpuInfo(kHopper))) {
    if (kernel->desc().backend != Backend::kNative) continue;
    if (kernel->id().starts_with("cuda_codes/as_")) continue;  // made of others
    const auto entry = entries.find(kernel->id());
    ASSERT_NE(entry, entries.end()) << "add the family of " << kernel->id() << " to HopperEntries";
    for (const void* function : {entry->second.function, entry->second.also}) {
      if (function == nullptr) continue;
      const auto name = RegisteredKernels().find(function);
      ASSERT_NE(name, RegisteredKernels().end()) << kernel->id();
      const KernelResources* compiled = Find(Report(), name->second);
      ASSERT_NE(compiled, nullptr) << name->second;
      EXPECT_THAT(Differences(kernel->info(), entry->second, *compiled), IsEmpty());
      ++compared;
    }
  }
  EXPECT_GT(compared, 40);
}

// They are not in the registry; their residency only affects their own predictions.
TEST(CudaResources, FusedKernelsHaveTheRegistersThatTheyState) {
  EXPECT_FALSE(sm90::FusedSkinnyKernels().empty());
  for (const sm90::SkinnyKernel& kernel : sm90::FusedSkinnyKernels()) {
    const auto name = RegisteredKernels().find(kernel.function);
    ASSERT_NE(name, RegisteredKernels().end()) << kernel.Id();
    const KernelResources* compiled = Find(Report(), name->second);
    ASSERT_NE(compiled, nullptr) << name->second;
    EXPECT_EQ(kernel.registers(), compiled->registers) << name->second;
  }
}

// The audit of what does go wrong.
constexpr char kGood[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'good' for 'sm_90a'\n"
    "ptxas info    : Function properties for good\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 1 barriers, 16 bytes smem\n";
constexpr char kSpills[] =
    "ptxas info    : Compiling entry function 'bad' for 'sm_80'\n"
    "ptxas info    : Function properties for bad\n"
    "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 0 barriers\n";
constexpr char kIgnored[] =
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum "
    "register requirements.\n";
constexpr char kSerialised[] =
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to insufficient register resources for the wgmma pipeline in 'good'\n";

PtxasReport Parsed(const std::string& text) {
  auto report = ParsePtxasReport(text);
  EXPECT_TRUE(report.ok());
  return report.ok() ? *report : PtxasReport{};
}

TEST(CudaResources, TheAuditSeesWhatIsWrong) {
  EXPECT_THAT(Faults(Parsed(kGood)), IsEmpty());
  EXPECT_THAT(Faults(Parsed(std::string(kGood) + kSpills)),
              testing::ElementsAre("bad for sm_80 spills 16 bytes",
                                   "bad for sm_80 keeps 8 bytes on a stack"));
  EXPECT_THAT(Faults(Parsed(std::string(kIgnored) + kGood)),
              testing::ElementsAre(HasSubstr("C7508")));
  EXPECT_THAT(Faults(Parsed(std::string(kGood) + kSerialised)),
              testing::ElementsAre(HasSubstr("C7510")));
  EXPECT_FALSE(ParsePtxasReport("Compiling entry function 'x' for 'sm_90a'\n").ok());
}

TEST(CudaResources, TheComparisonSeesWhatDiffers) {
  const PtxasReport report = Parsed(kGood);
  KernelInfo info;
  info.name = "k";
  info.registers = 168;
  info.dynamic_smem_size = 1016;
  const Entry entry = {nullptr, 384, 1000};
  EXPECT_THAT(Differences(info, entry, report.kernels[0]), IsEmpty());
  info.registers = 160;
  info.dynamic_smem_size = 1000;
  info.max_active_ctas = 2;
  EXPECT_THAT(Differences(info, entry, report.kernels[0]),
              testing::ElementsAre("k: registers 160 in KernelInfo, 168 in truth",
                                   "k: shared memory 1000 in KernelInfo, 1016 in truth",
                                   "k: CTAs a multiprocessor 2 in KernelInfo, 1 in truth"));
}

}  // namespace
}  // namespace culet
