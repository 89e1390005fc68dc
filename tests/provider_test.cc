// Kernels that a library computes: variants, probing, versions, and leaving libraries out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/verify.h"
#include "fake_kernel.h"
#include "gemm/cache_record.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

// A library as a kernel: it may be absent, has a version, and several algorithms.
class LibraryKernel final : public FakeKernel {
 public:
  explicit LibraryKernel(std::string id) : FakeKernel(std::move(id), Backend::kLibrary) {
    desc_.provider = "onednn";
  }
  Result<int> GetVariants(const GemmDesc&) const override {
    ++heuristics;
    if (variants == 0) return Status(StatusCode::kUnsupported, "the heuristic knows no algorithm");
    return variants;
  }
  Status Probe() const override {
    ++probes;
    if (throws) throw std::runtime_error("out of handles");
    if (no_memory) throw std::bad_alloc();
    return absent ? Status(StatusCode::kNotFound, "liblt.so.9 is not there; install it") : Status();
  }
  const char* provider_version() const noexcept override { return version; }

  int variants = 3;
  bool absent = false, throws = false, no_memory = false;
  const char* version = "9.1";
  mutable int probes = 0, heuristics = 0;
};

class ProviderTest : public ::testing::Test {
 protected:
  ProviderTest() : gemm_(*Gemm::Create()), desc_(*MakeDesc(Format::kF32, 4, 32, 64, /*arch=*/0)) {
    library_ = AddTo(gemm_);
  }

  static LibraryKernel* AddTo(Gemm& gemm) {
    auto kernel = std::make_unique<LibraryKernel>("lib/product");
    kernel->predicted_us = 1e-7;
    LibraryKernel* added = kernel.get();
    EXPECT_TRUE(gemm.Register(std::move(kernel)).ok());
    return added;
  }

  std::vector<LaunchSpec> Launches() {
    std::vector<LaunchSpec> specs = gemm_.Candidates(desc_);
    std::erase_if(specs, [&](const LaunchSpec& spec) { return spec.kernel != library_; });
    return specs;
  }

  LaunchSpec Measured(int variant) {
    LaunchSpec spec;
    spec.kernel = library_, spec.time_us = 1, spec.when = 5, spec.origin = Origin::kMeasured;
    spec.variant = variant;
    return spec;
  }

  std::string Exported() {
    std::ostringstream text;
    EXPECT_EQ(gemm_.cache().Export(text), 1);
    return text.str();
  }

  std::string Explained() { return gemm_.explain(desc_)->ToString(); }

  Gemm gemm_;
  GemmDesc desc_;
  LibraryKernel* library_;
};

TEST_F(ProviderTest, EveryVariantIsACandidateAndReachesTheKernel) {
  const auto launches = Launches();
  ASSERT_EQ(launches.size(), 3u);
  std::vector<float> a(4 * 64), b(64 * 32), d(4 * 32);
  GemmArgs args;
  args.A = a.data(), args.Adesc = RowMajor(DataType::kFloat32, 4, 64);
  args.B = b.data(), args.Bdesc = ColMajor(DataType::kFloat32, 64, 32);
  args.D = d.data(), args.Ddesc = RowMajor(DataType::kFloat32, 4, 32);
  args.operation.variant = 77;  // not the caller's to say
  int seen = -1;
  library_->run = [&](const GemmArgs& given, int, int, Workspace&) {
    seen = given.operation.variant;
    return 0;
  };
  Workspace none;
  for (int variant = 0; variant < 3; ++variant) {
    EXPECT_EQ(launches[variant].variant, variant) << "equals stay in the library's own order";
    const auto plan = gemm_.Plan(args, launches[variant]);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    ASSERT_TRUE(plan->Launch({.A = a.data(), .D = d.data()}, none).ok());
    EXPECT_EQ(seen, variant);
  }
  ASSERT_TRUE(gemm_.cache().Insert(desc_, Measured(2)));
  ASSERT_TRUE(gemm_.Run(args, none).ok());
  EXPECT_EQ(seen, 2);
  EXPECT_THAT(Explained(), HasSubstr("lib/product variant 2 (measured)"));
}

TEST_F(ProviderTest, ATwinHasTheVariantsOfItsKernel) {
  auto twin = transpose(*library_);
  const Kernel* const added = twin.get();
  EXPECT_EQ(added->desc().provider, "onednn");
  EXPECT_STREQ(added->provider_version(), "9.1");
  ASSERT_TRUE(gemm_.Register(std::move(twin)).ok());
  const auto all = gemm_.Candidates(desc_);
  EXPECT_EQ(std::ranges::count(all, added, &LaunchSpec::kernel), 3);
}

TEST_F(ProviderTest, TuningMeasuresEveryVariantAndRemembersTheFastest) {
  library_->run = [](const GemmArgs& args, int, int, Workspace&) {
    // Right in variant 1 alone, so that nothing else of the library can win.
    if (args.operation.variant != 1) return 0;
    const auto* a = static_cast<const float*>(args.A);
    const auto* b = static_cast<const float*>(args.B);
    for (std::int64_t m = 0; m < args.Ddesc.rows; ++m) {
      for (std::int64_t n = 0; n < args.Ddesc.cols; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < args.Adesc.cols; ++k) {
          sum += a[m * args.Adesc.ld + k] * b[n * args.Bdesc.ld + k];
        }
        static_cast<float*>(args.D)[m * args.Ddesc.ld + n] = static_cast<float>(args.alpha * sum);
      }
    }
    return 0;
  };
  const auto report = gemm_.Tune(desc_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::vector<int> wrong;
  for (const Dropped& dropped : report->dropped) {
    if (dropped.spec.kernel == library_ && dropped.reason.code() == StatusCode::kWrongResult) {
      wrong.push_back(dropped.spec.variant);
    }
  }
  EXPECT_THAT(wrong, ::testing::UnorderedElementsAre(0, 2));
}

TEST_F(ProviderTest, AHeuristicWithoutAnAnswerIsAReason) {
  library_->variants = 0;
  EXPECT_TRUE(Launches().empty());
  EXPECT_THAT(Explained(), HasSubstr("the heuristic knows no algorithm"));
  EXPECT_FALSE(gemm_.cache().Insert(desc_, Measured(1)));
  library_->variants = -1;
  EXPECT_THAT(Explained(), HasSubstr("has no variant for this problem"));
}

TEST_F(ProviderTest, ALibraryIsOpenedForWhatItIsPredictedToServe) {
  library_->predicted_us = 1e9;
  ASSERT_TRUE(gemm_.Choose(desc_).ok());
  EXPECT_EQ(library_->probes, 0) << "an own kernel comes first";
  EXPECT_EQ(library_->heuristics, 0);
  EXPECT_EQ(Launches().size(), 3u) << "a tuner asks";
  EXPECT_EQ(library_->probes, 1);

  library_->predicted_us = 1e-7;
  GemmDesc other = desc_;
  other.m = 5;
  EXPECT_EQ(gemm_.Choose(other)->kernel, library_);
  other.m = 6;
  library_->variants = 0;
  const auto next = gemm_.Choose(other);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_NE(next->kernel, library_) << "its heuristic refuses: the next one serves";
}

TEST_F(ProviderTest, AnAbsentLibraryIsAReasonAndProbedOnce) {
  library_->absent = true;
  EXPECT_EQ(library_->probes, 0) << "nothing is loaded before it is needed";
  EXPECT_TRUE(Launches().empty());
  EXPECT_THAT(Explained(), HasSubstr("liblt.so.9 is not there; install it"));
  EXPECT_EQ(library_->probes, 1);
  EXPECT_EQ(library_->heuristics, 0) << "the heuristic of a library that is not there";
  library_->absent = false;
  EXPECT_TRUE(Launches().empty()) << "what was found out stays";
  GemmArgs args;
  const std::vector<float> b(64 * 32);
  args.Adesc = RowMajor(DataType::kFloat32, 4, 64);
  args.B = b.data(), args.Bdesc = ColMajor(DataType::kFloat32, 64, 32);
  args.Ddesc = RowMajor(DataType::kFloat32, 4, 32);
  const Status status = gemm_.Plan(args, {.kernel = library_}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("liblt.so.9"));
}

TEST_F(ProviderTest, AProbeThatThrowsIsAReason) {
  library_->throws = true;
  EXPECT_THAT(Explained(), HasSubstr("lib/product: Probe threw: out of handles"));
}

TEST_F(ProviderTest, AWantOfMemoryIsNoAnswer) {
  library_->no_memory = true;
  EXPECT_THROW(library_->available().ok(), std::bad_alloc);
  library_->no_memory = false;
  EXPECT_TRUE(library_->available().ok());
}

TEST_F(ProviderTest, AProblemThatTheKernelRefusesLoadsNoLibrary) {
  library_->refusal = "takes FP8 alone";
  EXPECT_THAT(Explained(), HasSubstr("takes FP8 alone"));
  EXPECT_EQ(library_->probes, 0);
}

TEST_F(ProviderTest, VerifyCountsAnAbsentLibraryAsRefusing) {
  library_->absent = true;
  VerifyOptions options;
  options.kernel = "lib/";
  options.quick = true;
  const VerifyReport report = Verify(gemm_.registry(), gemm_.device(), options);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.passed, 0);
  EXPECT_GT(report.refused, 0);
}

TEST_F(ProviderTest, ARecordKeepsVariantAndVersion) {
  const std::string line = WriteRecord("cpu/test", desc_, Measured(2));
  EXPECT_THAT(line, HasSubstr("\"variant\":2"));
  EXPECT_THAT(line, HasSubstr("\"provider_version\":\"9.1\""));
  const ParsedRecord read = ReadRecord(line);
  ASSERT_EQ(read.state, RecordState::kSound) << read.record.damage;
  EXPECT_EQ(read.record.variant, 2);
  EXPECT_EQ(read.record.provider_version, "9.1");
  FakeKernel own("fake/own");
  const std::string plain = WriteRecord("cpu/test", desc_, {.kernel = &own, .time_us = 1});
  EXPECT_EQ(plain.find("variant"), std::string::npos);
  EXPECT_EQ(plain.find("provider"), std::string::npos);
}

TEST_F(ProviderTest, ARecordOfAnotherVersionIsAMissAndCounted) {
  ASSERT_TRUE(gemm_.cache().Insert(desc_, Measured(2)));
  const std::string text = Exported();
  const auto import = [&](auto&& change) {
    Gemm fresh = *Gemm::Create();
    change(*AddTo(fresh));
    std::istringstream stream(text);
    ImportReport report;
    fresh.cache().Import(stream, &report);
    EXPECT_EQ(fresh.cache().size(), static_cast<std::size_t>(report.used));
    return report;
  };
  EXPECT_EQ(import([](LibraryKernel&) {}).used, 1);
  const ImportReport newer = import([](LibraryKernel& kernel) { kernel.version = "9.2"; });
  EXPECT_EQ(newer.other_provider, 1);
  EXPECT_EQ(newer.ToString(), "0 used, 1 of other versions of a library");
  const ImportReport absent = import([](LibraryKernel& kernel) { kernel.absent = true; });
  EXPECT_EQ(absent.unavailable, 1);
  EXPECT_EQ(import([](LibraryKernel& kernel) { kernel.variants = 2; }).infeasible, 1);
}

TEST_F(ProviderTest, LibrariesAndOwnKernelsCanBeLeftOut) {
  const auto own_only = Gemm::Create({.providers = "own"});
  ASSERT_TRUE(own_only.ok()) << own_only.status().ToString();
  auto onednn_only = Gemm::Create({.providers = " onednn ,"});
  ASSERT_TRUE(onednn_only.ok()) << onednn_only.status().ToString();
  const auto explained = onednn_only->explain(desc_);
  ASSERT_TRUE(explained.ok());
  for (const auto& rejected : explained->rejected) {
    const Kernel* const kernel = onednn_only->registry().Find(rejected.kernel_id);
    if (kernel->desc().provider == kOwnProvider && kernel->why(desc_).ok() &&
        kernel->desc().backend != Backend::kReference) {
      EXPECT_THAT(rejected.reason, HasSubstr("left out")) << rejected.kernel_id;
      EXPECT_FALSE(rejected.feasible);
    }
  }
  // The user's kernel competes whatever the list says.
  LibraryKernel* const added = AddTo(*onednn_only);
  EXPECT_EQ(onednn_only->Choose(desc_)->kernel, added);
  EXPECT_TRUE(Gemm::Create({.providers = "all"}).ok());
}

TEST_F(ProviderTest, UnknownProvidersAreAnErrorThatListsTheKnown) {
  for (const char* list : {"own,nosuch", "nosuch"}) {
    const auto gemm = Gemm::Create({.providers = list});
    EXPECT_EQ(gemm.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(gemm.status().message(), HasSubstr("nosuch"));
    EXPECT_THAT(gemm.status().message(), HasSubstr("own, cublaslt, onednn"));
  }
  EXPECT_EQ(Gemm::Create({.providers = " , "}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ProviderTest, TheEnvironmentSaysWhoCompetesUnlessTheOptionDoes) {
  ASSERT_EQ(setenv("CULET_PROVIDERS", "nosuch", 1), 0);
  EXPECT_THAT(Gemm::Create().status().message(), HasSubstr("CULET_PROVIDERS names 'nosuch'"));
  EXPECT_TRUE(Gemm::Create({.providers = "own"}).ok());
  ASSERT_EQ(setenv("CULET_PROVIDERS", "", 1), 0);
  EXPECT_TRUE(Gemm::Create().ok());
  ASSERT_EQ(unsetenv("CULET_PROVIDERS"), 0);
}

TEST(KernelTest, WhatIsKnownToBeAvailableCannotBeLeftOut) {
  FakeKernel kernel("fake/own");
  EXPECT_TRUE(kernel.available().ok());
  EXPECT_EQ(kernel.LeaveOut(Status(StatusCode::kUnsupported, "late")).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(kernel.available().ok());
  FakeKernel other("fake/other");
  EXPECT_TRUE(other.LeaveOut(Status(StatusCode::kUnsupported, "in time")).ok());
  EXPECT_EQ(other.available().message(), "in time");
}

}  // namespace
}  // namespace culet
