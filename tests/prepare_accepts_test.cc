// What `why` takes, Prepare takes: with any distances between rows and any class of alignment, no
// kernel of the host refuses late. Late refusals of libraries are tested in
// prepare_failure_test.cc.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/registry.h"
#include "culet/scratch.h"
#include "culet/verify.h"

namespace culet {
namespace {

TEST(PrepareAcceptsTest, WhateverWhyAccepts) {
  const Registry registry = *Registry::Builtin(HostDevice(), "own");
  std::mt19937 random(11);
  int problems = 0, prepared = 0;
  for (GemmDesc desc : ConformanceProblems(0, /*quick=*/true)) {
    if (random() % 4 != 0) continue;
    ++problems;
    ScratchOptions options;
    options.gap_bytes = random() % 300;  // between rows, of scales too
    const auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
    ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
    for (Kernel* const kernel : registry.kernels()) {
      if (!Takes(*kernel, desc)) continue;
      const int4 shape = ShapeOf(desc);
      const int swizzles = *MaxSwizzle(*kernel, shape);
      const int splits =
          *MaxSplits(*kernel, shape, swizzles, std::size_t{1} << 20, std::size_t{16} << 20);
      for (const int parts : {1, splits}) {
        const auto plan = PrepareKernel(*kernel, scratch->args(), swizzles, parts);
        EXPECT_TRUE(plan.ok()) << kernel->id() << ", " << ToString(desc) << ": "
                               << plan.status().ToString();
        ++prepared;
      }
    }
  }
  EXPECT_GE(prepared, 2 * problems) << "the reference takes each problem";
  EXPECT_GT(problems, 20);
}

// One row has no distance to the next: whatever its ld, nothing changes.
TEST(PrepareAcceptsTest, AnyDistanceOfASingleRow) {
  const Registry registry = *Registry::Builtin(HostDevice(), "own");
  std::vector<float> a(64, 1), b(64 * 32, 1), d(32);
  GemmArgs args;
  args.A = a.data();
  args.B = b.data();
  args.D = d.data();
  args.Adesc = RowMajor(DataType::kFloat32, 1, 64);
  args.Bdesc = ColMajor(DataType::kFloat32, 64, 32);
  args.Ddesc = RowMajor(DataType::kFloat32, 1, 32);
  for (const std::int64_t ld : {std::int64_t{67}, std::int64_t{1} << 33, std::int64_t{1} << 40}) {
    args.Adesc.ld = args.Ddesc.ld = ld;
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    for (Kernel* const kernel : registry.kernels()) {
      if (!Takes(*kernel, *desc)) continue;
      const auto plan = PrepareKernel(*kernel, args, 0, 1);
      EXPECT_TRUE(plan.ok()) << kernel->id() << ", ld " << ld << ": " << plan.status().ToString();
    }
  }
}

}  // namespace
}  // namespace culet
