// oneDNN as a competitor: which libraries are taken and why others are not, and, on a fake one,
// that every part of D is computed once, with the right operands and one thread each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cpu_simd_problem.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "kernels/catalog.h"
#include "kernels/onednn/library.h"
#include "kernels/onednn/matmul.h"

namespace culet {
namespace {

using namespace simd_test;  // NOLINT: the problems are this file's vocabulary
using ::testing::AllOf;
using ::testing::HasSubstr;

// The library of this process: taken at the first call that needs one.
[[maybe_unused]] const int kNamed = setenv("CULET_ONEDNN", FAKE_ONEDNN, /*overwrite=*/1);

// While it lives, the fake library has a fault.
class Fault {
 public:
  explicit Fault(const char* name) { setenv("FAKE_ONEDNN", name, 1); }
  ~Fault() { unsetenv("FAKE_ONEDNN"); }
};

std::string ReasonFor(const char* fault, const char* path = FAKE_ONEDNN) {
  const Fault active(fault);
  return onednn::Load(path).reason;
}

TEST(OnednnLibrary, IsTakenWithVersionThreeAndOpenMp) {
  const onednn::Library library = onednn::Load(FAKE_ONEDNN);
  EXPECT_EQ(library.reason, "");
  EXPECT_EQ(library.version, "3.9.1");
  EXPECT_TRUE(library.has(onednn::kIsaAvx512Bf16));
}

TEST(OnednnLibrary, IsRefusedWithTheWayOut) {
  EXPECT_THAT(ReasonFor("", "/nowhere/libdnnl.so.3"),
              AllOf(HasSubstr("/nowhere/libdnnl.so.3"), HasSubstr("CULET_ONEDNN")));
  EXPECT_THAT(ReasonFor("old"), AllOf(HasSubstr("2.9.1"), HasSubstr("version 3")));
  EXPECT_THAT(ReasonFor("new"), AllOf(HasSubstr("4.9.1"), HasSubstr("version 3")));
  EXPECT_THAT(ReasonFor("tbb"), AllOf(HasSubstr("TBB"), HasSubstr("onednn-cpu-gomp")));
  EXPECT_THAT(ReasonFor("engine"), HasSubstr("dnnl_status_t 5"));
  EXPECT_THAT(ReasonFor("", FAKE_ONEDNN_WITHOUT_OPENMP), HasSubstr("lacks omp_get_max_threads"));
  EXPECT_THAT(ReasonFor("", FAKE_ONEDNN_WITHOUT_EXECUTE),
              AllOf(HasSubstr("3.9.1"), HasSubstr("lacks dnnl_primitive_execute")));
  EXPECT_THAT(ReasonFor("", "libm.so.6"), HasSubstr("no oneDNN"));
  // Opening a pipe would wait for its writer for ever.
  const std::string pipe = testing::TempDir() + "/culet_onednn_pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReasonFor("", pipe.c_str()),
              AllOf(HasSubstr(pipe + "' is not a regular file"), HasSubstr("CULET_ONEDNN")));
  unlink(pipe.c_str());
}

TEST(OnednnLibrary, RunsInOneThreadAndGivesTheOthersBack) {
  const onednn::Library& library = onednn::TheLibrary();
  ASSERT_EQ(library.reason, "");
  library.api.omp_set_num_threads(7);
  {
    const onednn::OneThread one(library);
    EXPECT_EQ(library.api.omp_get_max_threads(), 1);
  }
  EXPECT_EQ(library.api.omp_get_max_threads(), 7);
}

TEST(OnednnGrid, CoversTheOutputAndLeavesNoThreadWithout) {
  for (const int m : {1, 5, 512, 513, 8192}) {
    for (const int n : {1, 63, 64, 100, 4096, 151936}) {
      for (const int threads : {1, 2, 7, 64}) {
        GemmDesc desc;
        desc.a.type = kBfloat16;
        desc.m = m;
        desc.n = n;
        const onednn::Ways ways = onednn::WaysFor(desc, threads);
        ASSERT_GT(ways.count, 0);
        for (int way = 0; way < ways.count; ++way) {
          const onednn::Grid& grid = ways.variants[static_cast<std::size_t>(way)].grid;
          ASSERT_GT(grid.rows, 0);
          ASSERT_GT(grid.cols, 0);
          EXPECT_GE(std::int64_t{grid.row_parts()} * grid.rows, m);
          EXPECT_LT(std::int64_t{grid.row_parts() - 1} * grid.rows, m);
          EXPECT_GE(std::int64_t{grid.col_parts()} * grid.cols, n);
          EXPECT_LT(std::int64_t{grid.col_parts() - 1} * grid.cols, n);
          // Parts narrower than 64 columns would not pay.
          if (n >= 128 * threads) {
            EXPECT_GE(grid.parts(), threads) << m << " " << n;
          }
        }
      }
    }
  }
}

class Onednn : public testing::Test {
 protected:
  Onednn() { AddOnednn(HostDevice(), kernels_); }
  void TearDown() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

  Kernel& KernelFor(const Case& c) { return *kernels_[c.a == kFloat32 ? 0 : 1]; }

  void ExpectRight(const Case& c) {
    Problem problem(c, Data::kIntegers);
    problem.ComputeExpected();
    EXPECT_EQ(problem.Check(KernelFor(c)), "") << testing::PrintToString(c);
  }

  KernelList kernels_;
  const int threads_ = HostThreads();
};

constexpr DataType kInputs[] = {kFloat32, kBfloat16};

TEST_F(Onednn, EveryPartOfEveryShape) {
  for (const int threads : {1, 3}) {
    ASSERT_TRUE(SetHostThreads(threads).ok());
    for (const DataType type : kInputs) {
      for (const int m : {1, 17, 513}) {
        for (const int n : {1, 63, 64, 65, 200, 1100}) {
          ExpectRight({.a = type, .b = type, .d = type, .m = m, .n = n, .k = 10, .pad = 3});
        }
      }
    }
  }
}

TEST_F(Onednn, EveryOrderAndOutput) {
  for (const DataType type : kInputs) {
    for (const DataType d : {kFloat32, kFloat16, kBfloat16}) {
      for (const Order order_a : {Order::kRowMajor, Order::kColMajor}) {
        for (const Order order_b : {Order::kRowMajor, Order::kColMajor}) {
          ExpectRight({.a = type,
                       .b = type,
                       .d = d,
                       .m = 7,
                       .n = 133,
                       .k = 30,
                       .order_a = order_a,
                       .order_b = order_b,
                       .pad = 5,
                       .offset = 1});
        }
      }
    }
  }
}

TEST_F(Onednn, AlphaBetaBias) {
  for (const DataType type : kInputs) {
    for (const DataType d : {type, kFloat16}) {
      for (const DataType c : {kNull, kFloat32, kBfloat16}) {
        for (const Bias::Axis axis : {Bias::Axis::kN, Bias::Axis::kM}) {
          const Case base{.a = type, .b = type, .d = d, .m = 5, .n = 150, .k = 12, .pad = 1};
          Case whole = base;
          whole.alpha = 0.5f;
          whole.beta = 2.0f;
          whole.c = c;
          whole.bias = kFloat32;
          whole.bias_axis = axis;
          ExpectRight(whole);
          Case scaled = base;  // no C and no bias, but more than the product
          scaled.alpha = -2.0f;
          ExpectRight(scaled);
        }
      }
    }
  }
}

TEST_F(Onednn, ABudgetOfThreadsHolds) {
  ASSERT_TRUE(SetHostThreads(4).ok());
  ExpectRight({.m = 3, .n = 1000, .k = 5, .sm_budget = 2});
}

TEST_F(Onednn, EveryVariant) {
  ASSERT_TRUE(SetHostThreads(2).ok());
  for (const int m : {40, 130}) {
    const Case c{.a = kBfloat16, .b = kBfloat16, .d = kFloat32, .m = m, .n = 2500, .k = 34};
    Problem problem(c, Data::kIntegers);
    problem.ComputeExpected();
    const GemmDesc desc = *Describe(problem.Args(), 0);
    const int variants = *KernelFor(c).GetVariants(desc);
    EXPECT_EQ(variants, 3);  // by columns in two or three widths, and the second by rows
    EXPECT_EQ(onednn::WaysFor(desc, 2).variants[1].by_rows, m == 130);
    for (int variant = 0; variant < variants; ++variant) {
      Problem fresh = problem;
      fresh.set_variant(variant);
      EXPECT_EQ(fresh.Check(KernelFor(c)), "") << variant;
    }
  }
}

// One thread's rows and columns are the same part.
TEST_F(Onednn, RowsAndColumnsOfOneThread) {
  ASSERT_TRUE(SetHostThreads(1).ok());
  ExpectRight({.a = kBfloat16, .b = kBfloat16, .d = kBfloat16, .m = 257, .n = 256, .k = 16});
}

// By rows the library writes D itself: only where D is the product and nothing more.
TEST_F(Onednn, WhatTheLibraryWritesIsTheProductAlone) {
  ASSERT_TRUE(SetHostThreads(1).ok());
  const Case plain{.a = kBfloat16, .b = kBfloat16, .d = kBfloat16, .m = 257, .n = 64, .k = 16};
  Case scaled = plain, with_bias = plain, with_c = plain, apart = plain;
  scaled.alpha = -2.0f;
  with_bias.bias = kFloat32;
  with_c.beta = 1.0f;
  with_c.c = kBfloat16;
  apart.pad = 8;
  for (const Case& c : {plain, scaled, with_bias, with_c, apart}) ExpectRight(c);
}

GemmDesc DescOf(const Case& c) { return *Describe(Problem(c, Data::kIntegers).Args(), 0); }

TEST_F(Onednn, NamesItsProviderAndVersion) {
  const Case c{.m = 2, .n = 2, .k = 2};
  EXPECT_TRUE(Takes(*kernels_[0], DescOf(c)));
  EXPECT_STREQ(kernels_[0]->provider_version(), "3.9.1");
  EXPECT_EQ(kernels_[0]->desc().provider, "onednn");
}

TEST_F(Onednn, RefusesWhatTheLibraryCannotDo) {
  const Case half{.a = kFloat16, .b = kFloat16, .d = kFloat16, .m = 2, .n = 2, .k = 2};
  EXPECT_FALSE(kernels_[0]->why(DescOf(half)).ok());
  EXPECT_FALSE(kernels_[1]->why(DescOf(half)).ok());
  const Case mixed{.a = kFloat32, .b = kBfloat16, .d = kFloat32, .m = 2, .n = 2, .k = 2};
  EXPECT_FALSE(kernels_[0]->why(DescOf(mixed)).ok());
  for (const int k : {1, 33}) {
    const Case odd{.a = kBfloat16, .b = kBfloat16, .d = kFloat32, .m = 2, .n = 2, .k = k};
    EXPECT_THAT(KernelFor(odd).why(DescOf(odd)).reason(), HasSubstr("odd K"));
    const Case single{.a = kFloat32, .b = kFloat32, .d = kFloat32, .m = 2, .n = 2, .k = k};
    EXPECT_TRUE(KernelFor(single).why(DescOf(single)).ok());
  }
}

// Of a single row or column the distance to the next is nothing that a plan may depend on: the
// library keeps what it chose for the first of those that differ in it alone.
TEST_F(Onednn, DistancesOfSingleLinesDoNotCount) {
  const Fault active("lines");
  for (const DataType type : kInputs) {
    for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
      ExpectRight({.a = type,
                   .b = type,
                   .d = kFloat32,
                   .m = 1,
                   .n = 9,
                   .k = 8,
                   .order_a = order,
                   .pad = 40});
      ExpectRight({.a = type,
                   .b = type,
                   .d = kFloat32,
                   .m = 9,
                   .n = 1,
                   .k = 8,
                   .order_b = order,
                   .pad = 40});
      if (type == kBfloat16) continue;  // takes no odd K
      ExpectRight({.a = type,
                   .b = type,
                   .d = kFloat32,
                   .m = 9,
                   .n = 5,
                   .k = 1,
                   .order_a = order,
                   .order_b = order,
                   .pad = 40});
    }
  }
}

// What the library refuses or fails at is an error of the launch, never a crash or a wrong D.
TEST_F(Onednn, FaultsOfTheLibraryAreErrors) {
  const Case c{.m = 4, .n = 70, .k = 8, .pad = 2};
  for (const char* fault : {"refuse", "create", "scratchpad", "execute"}) {
    Problem problem(c, Data::kIntegers);
    const Fault active(fault);
    EXPECT_THAT(problem.Run(KernelFor(c)), HasSubstr("returned")) << fault;
  }
  const Fault active("refuse");
  GemmArgs args = Problem(c, Data::kIntegers).Args();
  const auto prepared = kernels_[0]->Prepare(args, 0, 1);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(prepared.status().message(), AllOf(HasSubstr("3.9.1"), HasSubstr("dnnl_status_t 3")));
}

}  // namespace
}  // namespace culet
