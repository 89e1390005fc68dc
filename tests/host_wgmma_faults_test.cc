// That the emulation of Hopper's asynchronous instructions shows what is wrong with a kernel: a
// small product that is right, and the same with one mistake each. Then products from registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "host_wgmma_values.h"
#include "sm90/descriptor.h"
#include "sm90/instructions.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/tensor_map.h"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {
namespace {

enum class Mistake {
  kNone,
  kNoWaitForFull,
  kNoWaitForEmpty,
  kPhase,       ///< of a full barrier
  kBytes,       ///< fewer expected than come
  kArrivals,    ///< one too many at an empty barrier
  kDescriptor,  ///< groups of eight rows half as far apart
  kNoFence,
  kReleasesEarly,   ///< before the product has read the stage
  kReadsEarly,      ///< sums before the product was waited for
  kWarpsDiffer,     ///< one warp multiplies other rows
  kBeforePrevious,  ///< loads do not wait for the kernel before
  kOutside          ///< a box behind the stages
};

constexpr int kStages = 2, kColumns = 16, kBlocksOfK = 9;
constexpr int kBytesOfA = 64 * kBlockBytes, kStageBytes = kBytesOfA + kColumns * kBlockBytes;
constexpr int kShared = kStages * kStageBytes + static_cast<int>(sizeof(Ring<kStages>));

struct Params {
  CUtensorMap a, b;
  float* d;
  Mistake mistake;
};

// Four warps multiply, one loads.
void Kernel(const Params p) {
  CULET_DYNAMIC_SHARED(stages);
  auto& ring = *reinterpret_cast<Ring<kStages>*>(stages + kStages * kStageBytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto wrong = [&](Mistake mistake) { return p.mistake == mistake; };
  if (threadIdx.x == 0) {
    ring.InitFull(FullArrivals());
    ring.InitEmpty(EmptyArrivals(4, 1));
    BarrierInitFence();
  }
  __syncthreads();
  RingCursor<kStages> at;
  if (warp == 4) {
    if (!ElectOne()) return;
    if (!wrong(Mistake::kBeforePrevious)) GridDependencyWait();
    for (int block = 0; block < kBlocksOfK; ++block, at.Advance()) {
      if (!wrong(Mistake::kNoWaitForEmpty)) ring.WaitEmpty(at);
      uint64_t* const full = &ring.full[at.stage];
      uint8_t* const to = stages + at.stage * kStageBytes;
      BarrierArriveExpect(full, kStageBytes - (wrong(Mistake::kBytes) ? 128 : 0));
      TmaLoad(to, &p.a, full, block * kBlockBytes, 0);
      TmaLoad(to + kBytesOfA * (wrong(Mistake::kOutside) ? 4 : 1), &p.b, full, block * kBlockBytes,
              0);
    }
    if (wrong(Mistake::kBeforePrevious)) GridDependencyWait();
    return;
  }
  float sum[kColumns / 2] = {};
  for (int block = 0; block < kBlocksOfK; ++block, at.Advance()) {
    if (!wrong(Mistake::kNoWaitForFull))
      BarrierWait(&ring.full[at.stage], at.parity ^ (wrong(Mistake::kPhase) ? 1 : 0));
    if (wrong(Mistake::kReleasesEarly)) ring.Release<1>(at.stage, lane);
    const uint32_t stage = SharedAddress(stages + at.stage * kStageBytes);
    const uint64_t a = WgmmaDescriptor128(stage) - (wrong(Mistake::kDescriptor) ? 32ull << 32 : 0);
    const uint64_t b = WgmmaDescriptor128(stage + kBytesOfA) +
                       WgmmaDescriptorStep(wrong(Mistake::kWarpsDiffer) && warp == 1 ? 32 : 0);
    if (!wrong(Mistake::kNoFence)) WgmmaFence();
    for (uint32_t k = 0; k < kBlockBytes; k += kWgmmaKBytes)
      Wgmma<Bf16, kColumns>::Ss<true>(sum, a + WgmmaDescriptorStep(k), b + WgmmaDescriptorStep(k));
    WgmmaCommit();
    if (!wrong(Mistake::kReadsEarly) || block + 1 < kBlocksOfK) WgmmaWait<0>();
    if (!wrong(Mistake::kReleasesEarly)) ring.Release<1>(at.stage, lane);
    if (wrong(Mistake::kArrivals) && warp == 0) ring.Release<1>(at.stage, lane);
  }
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    p.d[row * kColumns + column] = sum[i];
  }
  if (wrong(Mistake::kReadsEarly)) WgmmaWait<0>();
}

TensorMapPlan PlanOf(std::int64_t k, int rows, int box_rows) {
  TensorMapPlan plan;
  plan.inner = Size(k * 2), plan.outer = Size(rows), plan.pitch_bytes = Size(k * 2);
  plan.box_inner = kBlockBytes, plan.box_outer = static_cast<std::uint32_t>(box_rows);
  return plan;
}

/// Whether a launch ends and D is right.
bool IsRightOnce(Mistake mistake) {
  constexpr int kDepth = kBlocksOfK * Bf16::kBlockK;
  const Elements given = WholeNumbers(DataType::kBfloat16, 64, kDepth, kDepth, 3, 1);
  Elements a(DataType::kBfloat16, 64 * kDepth, NAN);
  const Elements b = WholeNumbers(DataType::kBfloat16, kColumns, kDepth, kDepth, 3, 2);
  std::vector<float> d(64 * kColumns);
  Params params{};
  params.d = d.data(), params.mistake = mistake;
  EXPECT_TRUE(EncodeTensorMap(PlanOf(kDepth, 64, 64), a.data(), &params.a));
  EXPECT_TRUE(EncodeTensorMap(PlanOf(kDepth, kColumns, kColumns), b.data(), &params.b));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1), config.blockDim = dim3(160);
  config.dynamicSmemBytes = kShared;
  config.attrs = &early, config.numAttrs = 1;
  host_cuda::OnWait([&] { std::copy(given.memory.begin(), given.memory.end(), a.memory.begin()); });
  const cudaError_t error = host_cuda::RunGrid(config, [&] { Kernel(params); });
  host_cuda::OnWait(nullptr);
  if (error != cudaSuccess) return false;
  const std::vector<float> of_a = given.Values(64 * kDepth), of_b = b.Values(kColumns * kDepth);
  for (std::size_t i = 0; i < d.size(); ++i)
    if (d[i] != Dot(&of_a[i / kColumns * kDepth], &of_b[i % kColumns * kDepth], kDepth))
      return false;
  return true;
}

/// Warps have other paces in each launch, and some mistakes need a slow one.
bool IsRight(Mistake mistake) {
  constexpr int kLaunches = 8;
  bool right = true;
  for (int i = 0; i < kLaunches && right; ++i) right = IsRightOnce(mistake);
  return right;
}

TEST(HostWgmmaFaults, ShowMistakes) {
  EXPECT_TRUE(IsRight(Mistake::kNone)) << host_cuda::Fault();
  for (int i = 1; i <= static_cast<int>(Mistake::kOutside); ++i)
    EXPECT_FALSE(IsRight(static_cast<Mistake>(i))) << i;
  EXPECT_TRUE(IsRight(Mistake::kNone)) << host_cuda::Fault();
}

TEST(HostWgmmaFaults, RefusesMapsThatTheDriverRefuses) {
  CUtensorMap map;
  Elements some(DataType::kBfloat16, 64 * 64, 0);
  char* const base = static_cast<char*>(some.data());
  EXPECT_TRUE(EncodeTensorMap(PlanOf(64, 64, 64), base, &map));
  EXPECT_FALSE(EncodeTensorMap(PlanOf(64, 64, 64), base + 8, &map));
  EXPECT_FALSE(ReplaceTensorMapAddress(&map, base + 8));
  const auto encode = TensorMapEncoder();
  const auto encodes = [&](cuuint64_t pitch, cuuint32_t row, cuuint32_t rows) {
    const cuuint64_t extents[2] = {128, 64};
    const cuuint32_t box[2] = {row, rows}, steps[2] = {1, 1};
    return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, base, extents, &pitch, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  EXPECT_TRUE(encodes(128, 128, 64));
  EXPECT_FALSE(encodes(136, 128, 64));
  EXPECT_FALSE(encodes(128, 144, 64));
  EXPECT_FALSE(encodes(128, 120, 64));
  EXPECT_FALSE(encodes(128, 128, 257));
}

// A in registers, 64 x 16; B with 128 columns side by side, 16 deep.
TEST(HostWgmmaFaults, MultipliesRegistersByColumnsSideBySide) {
  constexpr int kWide = 128, kDeep = 16, kBox = kDeep * kBlockBytes;
  const Elements a = WholeNumbers(DataType::kFloat16, 64, kDeep, kDeep, 9, 1);
  const Elements b = WholeNumbers(DataType::kFloat16, kDeep, kWide, kWide, 9, 2);
  std::vector<float> d(64 * kWide);
  CUtensorMap map;
  ASSERT_TRUE(EncodeTensorMap(PlanOf(kWide, kDeep, kDeep), b.data(), &map));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1), config.blockDim = dim3(128);
  config.dynamicSmemBytes = 2 * kBox + 8;
  const cudaError_t error = host_cuda::RunGrid(config, [&] {
    CULET_DYNAMIC_SHARED(shared);
    auto* const full = reinterpret_cast<uint64_t*>(shared + 2 * kBox);
    if (threadIdx.x == 0) {
      BarrierInit(full, 1);
      BarrierArriveExpect(full, 2 * kBox);
      for (int i = 0; i < 2; ++i) TmaLoad(shared + i * kBox, &map, full, i * kBlockBytes, 0);
    }
    __syncthreads();
    BarrierWait(full, 0);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    uint32_t of_a[4];
    for (int i = 0; i < 4; ++i) {
      const int row = warp * 16 + lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
      of_a[i] = PackF16(a.Get(row * kDeep + k), a.Get(row * kDeep + k + 1));
    }
    float sum[kWide / 2];
    WgmmaFence();
    WgmmaTransposedB<F16, kWide>::Rs<false>(
        sum, of_a, WgmmaDescriptorTransposed128(SharedAddress(shared), kBox));
    WgmmaCommit();
    WgmmaWait<0>();
    for (int i = 0; i < kWide / 2; ++i)
      d[Size((warp * 16 + lane / 4 + i / 2 % 2 * 8) * kWide + i / 4 * 8 + lane % 4 * 2 + i % 2)] =
          sum[i];
  });
  ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < kWide; ++column) {
      double expected = 0;
      for (int k = 0; k < kDeep; ++k)
        expected += double{a.Get(row * kDeep + k)} * b.Get(k * kWide + column);
      ASSERT_EQ(d[Size(row * kWide + column)], expected) << row << " " << column;
    }
}

}  // namespace
}  // namespace culet::sm90
