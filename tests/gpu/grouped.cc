#include "grouped.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "jobs.h"
#include "kernels/sm90/block/block.h"
#include "on_device.h"

namespace culet {
namespace {

using sm90::BlockKernel;
using sm90::BlockLaunch;

constexpr std::uint16_t kPoison = 0xffff;
constexpr int kGuardRows = 3;

struct Case {
  const char* name;
  std::vector<int> starts, counts;  // no counts: a group ends where the next one starts
};

// Rows of A and D: 900.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"contiguous", {0, 0, 1, 8, 136, 265, 565, 629}, {0, 1, 7, 128, 129, 300, 64, 0}},
      {"offsets", {0, 0, 1, 8, 136, 265, 565, 629, 870}, {}},
      {"offsets beyond the rows", {-5, 100, 100, 690, 2000000000, -2000000000, -7, 0, 0}, {}},
      {"with gaps", {5, 40, 180, 181, 330, 470, 640, 880}, {30, 127, 1, 128, 9, 150, 200, 20}},
      {"one has all", {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 900, 0, 0, 0}},
      {"none", {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}},
      {"beyond the rows",
       {-5, 100, 890, 2000000000, 950, 200, 300, 400},
       {10, -3, 2000000000, 2000000000, 7, 13, 1, 2}},
  };
  return cases;
}

// Small integers as E4M3, and what they are.
struct Codes {
  std::vector<std::uint8_t> codes;
  std::vector<double> values;
};
Codes RandomCodes(std::size_t count, std::mt19937& random) {
  constexpr std::uint8_t kCodes[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0xb8, 0xc0, 0xc4, 0xc8};
  constexpr double kValues[] = {0, 1, 2, 3, 4, -1, -2, -3, -4};
  Codes made{std::vector<std::uint8_t>(count), std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned pick = random() % 9;
    made.codes[i] = kCodes[pick];
    made.values[i] = kValues[pick];
  }
  return made;
}
std::vector<float> RandomScales(std::size_t count, std::mt19937& random) {
  std::vector<float> scales(count);
  for (float& scale : scales) scale = static_cast<float>(1 << random() % 3) / 2;
  return scales;
}

bool CheckKernel(const BlockKernel& kernel, const Case& c, int n, int k, bool rows_inner) {
  constexpr int kRows = 900;
  const int groups = 8;
  const int k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
  const int pitch = (k_blocks + 3) / 4 * 4;
  std::mt19937 random(static_cast<unsigned>(n * 7 + k));
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const Codes a = RandomCodes(size(std::int64_t{kRows} * k), random);
  const Codes b = RandomCodes(size(std::int64_t{groups} * n * k), random);
  const std::vector<float> scale_a = RandomScales(size(std::int64_t{kRows} * pitch), random);
  const std::vector<float> scale_b =
      RandomScales(size(std::int64_t{groups} * n_blocks * pitch), random);
  const OnDevice<std::uint8_t> da(a.codes), db(b.codes);
  const OnDevice<float> dsa(scale_a), dsb(scale_b);
  const OnDevice<int> starts(c.starts), counts(c.counts.empty() ? c.starts : c.counts);
  const std::size_t elements = size(std::int64_t{kRows + 2 * kGuardRows} * n);
  const OnDevice<std::uint16_t> d(std::vector<std::uint16_t>(elements, kPoison));

  sm90::ProductProblem problem;
  problem.m = kRows, problem.n = n, problem.k = k;
  problem.lda = problem.ldb = k, problem.ldd = n;
  problem.a = da.data(), problem.b = db.data();
  problem.d = d.data() + std::int64_t{kGuardRows} * n;
  problem.scale_a = dsa.data(), problem.scale_b = dsb.data();
  problem.scale_a_row = rows_inner ? 1 : pitch;
  problem.scale_a_block = rows_inner ? kRows : 1;
  problem.scale_b_column = pitch, problem.scale_b_block = 1;
  BlockLaunch launch;
  const std::string name =
      fmt::format("{} n={} k={} {}{}", kernel.id, n, k, c.name, rows_inner ? ", rows inner" : "");
  if (!PlanGroupedBlock(kernel, problem,
                        {.starts = starts.data(),
                         .counts = c.counts.empty() ? nullptr : counts.data(),
                         .count = groups},
                        132, &launch)) {
    fmt::print("grouped: {}: no plan\n", name);
    return false;
  }
  CheckCuda(sm90::Load(kernel), "Load");
  CheckCuda(launch.Start(nullptr), name);
  CheckCuda(cudaDeviceSynchronize(), name);
  std::vector<std::uint16_t> found(elements);
  CheckCuda(cudaMemcpy(found.data(), d.data(), elements * 2, cudaMemcpyDeviceToHost), name);

  std::vector<std::uint16_t> expected(elements, kPoison);
  for (int g = 0; g < groups; ++g) {
    const std::int64_t begin = std::max(c.starts[size(g)], 0);
    const std::int64_t end = std::min<std::int64_t>(
        c.counts.empty() ? c.starts[size(g) + 1]
                         : std::int64_t{c.starts[size(g)]} + std::max(c.counts[size(g)], 0),
        kRows);
    for (std::int64_t row = begin; row < end; ++row) {
      for (int column = 0; column < n; ++column) {
        double sum = 0;
        for (int block = 0; block < k_blocks; ++block) {
          double part = 0;
          for (int i = block * 128; i < std::min(k, block * 128 + 128); ++i) {
            part += a.values[size(row * k + i)] *
                    b.values[size((std::int64_t{g} * n + column) * k + i)];
          }
          const float of_a =
              scale_a[size(rows_inner ? std::int64_t{block} * kRows + row : row * pitch + block)];
          sum += part * of_a *
                 scale_b[size((std::int64_t{g} * n_blocks + column / 128) * pitch + block)];
        }
        expected[size((row + kGuardRows) * n + column)] = FloatToBfloat16(static_cast<float>(sum));
      }
    }
  }
  for (std::size_t i = 0; i < elements; ++i) {
    if (found[i] == expected[i]) continue;
    fmt::print("grouped: {}: row {} column {} is {:#06x} instead of {:#06x}\n", name,
               static_cast<std::int64_t>(i) / n - kGuardRows, static_cast<std::int64_t>(i) % n,
               found[i], expected[i]);
    return false;
  }
  return true;
}

}  // namespace

bool CheckGrouped() {
  int count = 0;
  bool right = true;
  for (const BlockKernel& kernel : sm90::GroupedBlocks()) {
    for (const Case& c : Cases()) {
      for (const bool rows_inner : {false, true}) {
        for (const auto& [n, k] : {std::pair{128, 128}, {520, 400}, {264, 1040}}) {
          right = CheckKernel(kernel, c, n, k, rows_inner) && right;
          ++count;
        }
      }
    }
  }
  if (right) fmt::print("grouped: {} launches right\n", count);
  return right;
}

}  // namespace culet
