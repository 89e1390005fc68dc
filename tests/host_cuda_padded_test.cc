// A kernel that copies rows of A and B to where TMA could load them, in front of one that takes no
// others: the copies are the library's, the product is the CPU's reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "culet/desc.h"
#include "culet/registry.h"
#include "kernels/sm90/product/padded.h"

namespace culet {
namespace {

constexpr int kSms = 132;
constexpr DataType kF32 = DataType::kFloat32;

Kernel* reference = nullptr;
int products = 0;

// A launch as the families plan one: its operands are put into it, and it is started.
struct Params : GemmArgs {};
struct Planned {
  Params params;

  bool AddsC() const { return params.Cdesc.type != DataType::kNull; }
  bool Rebind(const sm90::GemmOperands& operands) {
    params.A = operands.a, params.U = operands.scale_a;
    params.C = operands.c, params.D = operands.d;
    params.alpha = operands.alpha, params.beta = operands.beta;
    return true;
  }
  cudaError_t Start(cudaStream_t stream) const {
    ++products;
    const auto desc = Describe(params, 0);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    EXPECT_EQ(desc->a.align, 16);
    EXPECT_EQ(desc->b.align, 16);
    Workspace none;
    EXPECT_TRUE(LaunchKernel(*reference, params, 0, 1, none, stream).ok());
    return cudaSuccess;
  }
};

bool BindB(Params* params, const void* b) {
  params->B = b;
  return true;
}

class Aligned final : public sm90::ProductKernel<Planned> {
 public:
  Aligned() : ProductKernel(Stated(), Named()) {}
  Feasibility why(const GemmDesc& p) const noexcept override {
    seen = p;
    return p.a.align < 16 || p.b.align < 16 ? Feasibility::Refuse("rows") : Kernel::why(p);
  }
  double PredictUs(const GemmDesc&, const DeviceInfo&, const HardwareRates&, int,
                   int) const noexcept override {
    return 10;
  }
  mutable GemmDesc seen;

 private:
  bool Plan(const GemmArgs& args, int, int, Planned* launch) const override {
    launch->params = {args};
    return true;
  }
  cudaError_t Load() const override { return cudaSuccess; }
  static KernelDesc Stated() {
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.determinism = Determinism::kRepeatable;
    desc.pdl = true;
    return desc;
  }
  static KernelInfo Named() {
    KernelInfo info;
    info.name = "aligned";
    return info;
  }
};

class PaddedTest : public testing::Test {
 protected:
  PaddedTest() {
    reference = registry_.Find("cpu_reference");
    products = 0;
  }

  // Operands of whole numbers, whose rows begin `skip` elements behind 256 bytes.
  void Make(DataType type, int m, int n, int k, int skip, int gap) {
    std::mt19937 random(k);
    const std::size_t size = SizeOf(type);
    const auto fill = [&](std::vector<std::byte>& bytes, int rows) {
      bytes.assign((static_cast<std::size_t>(rows) * (k + gap) + skip + 256) * size,
                   std::byte{0x7B});
      void* data = bytes.data();
      std::size_t room = bytes.size();
      auto* const first = static_cast<std::byte*>(std::align(256, 1, data, room)) + skip * size;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < k; ++j) {
          const float value = static_cast<float>(random() % 9) - 4;
          std::byte* const at = first + (static_cast<std::size_t>(i) * (k + gap) + j) * size;
          if (type == kF32) {
            std::memcpy(at, &value, 4);
          } else if (type == DataType::kBfloat16) {
            const std::uint16_t bits = FloatToBfloat16(value);
            std::memcpy(at, &bits, 2);
          } else {
            *at = static_cast<std::byte>(FloatToFloat8E4m3(value));
          }
        }
      }
      return first;
    };
    args_ = {};
    args_.A = fill(a_, m), args_.Adesc = RowMajor(type, m, k, k + gap);
    args_.B = fill(b_, n), args_.Bdesc = ColMajor(type, k, n, k + gap);
    d_.assign(static_cast<std::size_t>(m) * n, -1.0f);
    args_.D = d_.data(), args_.Ddesc = RowMajor(kF32, m, n);
  }
  GemmDesc Desc() const {
    const auto desc = Describe(args_, 0);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    return *desc;
  }
  // Launches through a plan without A and D, then all at once, and compares with the reference.
  void ExpectRight() {
    Workspace none;
    ASSERT_TRUE(LaunchKernel(*reference, args_, 0, 1, none, nullptr).ok());
    const std::vector<float> expected = d_;
    const GemmDesc desc = Desc();
    ASSERT_TRUE(kernel_.why(desc).ok()) << kernel_.why(desc).reason();
    const std::size_t size = kernel_.workspace_size(desc, 0, 1).partials;
    std::vector<std::byte> memory(size + 512, std::byte{0x5A});
    void* data = memory.data();
    std::size_t room = memory.size();
    Workspace workspace;
    workspace.partials = std::align(256, size, data, room), workspace.partials_size = size;
    for (const bool prepares : {true, false}) {
      std::fill(d_.begin(), d_.end(), -1.0f);
      if (prepares) {
        GemmArgs later = args_;
        if (args_.Adesc.rows > 1) later.A = nullptr;
        later.D = nullptr;
        const auto prepared = PrepareKernel(kernel_, later, 0, 1);
        ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
        EXPECT_EQ((*prepared)->Launch(1, args_.A, nullptr, 0, nullptr, args_.D, workspace, nullptr),
                  0);
      } else {
        EXPECT_TRUE(LaunchKernel(kernel_, args_, 0, 1, workspace, nullptr).ok());
      }
      EXPECT_EQ(d_, expected);
    }
    const auto* const end = static_cast<const std::byte*>(workspace.partials) + size;
    for (int i = 0; i < 64; ++i) EXPECT_EQ(end[i], std::byte{0x5A}) << "behind the workspace";
    EXPECT_EQ(products, 2);
    products = 0;
  }

  Registry registry_ = Registry::Builtin(HostDevice());
  Aligned inner_;
  sm90::PaddedKernel<Planned> kernel_{inner_, kSms};
  GemmArgs args_;
  std::vector<std::byte> a_, b_;
  std::vector<float> d_;
};

TEST_F(PaddedTest, GivesWhatTheReferenceGives) {
  struct Case {
    DataType type;
    int m, n, k, skip, gap;
  };
  constexpr DataType kE4m3 = DataType::kFloat8_e4m3, kBf16 = DataType::kBfloat16;
  for (const Case& c :
       {Case{kE4m3, 3, 5, 13, 0, 0}, Case{kE4m3, 2, 3, 4104, 0, 0}, Case{kE4m3, 5, 4, 300, 0, 0},
        Case{kE4m3, 4, 3, 30, 2, 0}, Case{kBf16, 3, 6, 7, 0, 0}, Case{kBf16, 1, 6, 20, 1, 0},
        Case{kF32, 7, 3, 5, 0, 0}, Case{kF32, 2, 2, 9, 0, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << c.m << " x " << c.n << " x " << c.k << ", " << SizeOf(c.type) << " bytes");
    Make(c.type, c.m, c.n, c.k, c.skip, c.gap);
    ExpectRight();
  }
}

TEST_F(PaddedTest, CopiesWhatDoesNotLieOn16AndNothingElse) {
  Make(kF32, 4, 6, 5, 0, 0);
  EXPECT_EQ(kernel_.workspace_size(Desc(), 0, 1).partials, 512u);  // 4 and 6 rows of 32 bytes
  EXPECT_GT(kernel_.PredictUs(Desc(), {}, {}, 0, 1), 12);
  EXPECT_FALSE(inner_.seen.pdl) << "the kernel in front writes B's copy";
  // B's rows lie on 16 bytes.
  std::vector<float> b(6 * 8, 1.0f);
  args_.B = b.data(), args_.Bdesc.ld = 8;
  EXPECT_EQ(kernel_.workspace_size(Desc(), 0, 1).partials, 256u);
  ExpectRight();
  EXPECT_TRUE(inner_.seen.pdl) << "B may be loaded before A's copy is made";
  // A's, too.
  args_.Adesc = RowMajor(kF32, 4, 4), args_.Bdesc = ColMajor(kF32, 4, 6, 8);
  EXPECT_STREQ(kernel_.why(Desc()).reason(),
               "leaves rows on 16 bytes to the kernel without copies");
  EXPECT_TRUE(inner_.why(Desc()).ok());
  EXPECT_EQ(kernel_.id(), "aligned/padded");
}

TEST_F(PaddedTest, IsOfferedBesideKernelsThatPairNoColumns) {
  KernelList kernels;
  sm90::AddPadded(inner_, kSms, kernels);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels.front()->id(), "aligned/padded");
}

}  // namespace
}  // namespace culet
