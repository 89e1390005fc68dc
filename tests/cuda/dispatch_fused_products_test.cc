// Products fused with the norm before them and SwiGLU behind them, against the same launches of the
// product with the neighbours' own kernels: the same bits. On a GPU.
#include <algorithm>

#include "cases.h"
#include "cuda/fused_product.h"
#include "kernels/cuda_ops/fused.h"
#include "test_dispatch.h"

namespace culet {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  int m, n, k;
  bool adds = true, gated = false, keeps_sum = true, bias = false;
  DataType gamma = DataType::kBfloat16, values = DataType::kBfloat16;
};

std::string Words(const Case& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) +
         (c.adds ? " adds" : "") + (c.gated ? " gated" : "") + (c.bias ? " bias" : "") + " " +
         ToString(c.values);
}

class FusedProducts : public testing::Test {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
  }

  template <class T = void>
  T* Copy(const Bytes& bytes) {
    DeviceMemory& memory = test_.dispatch->memory();
    auto buffer = DeviceBuffer::Create(memory, bytes.size());
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    EXPECT_TRUE(memory.Upload(buffer->get(), bytes.data(), bytes.size(), nullptr).ok());
    EXPECT_TRUE(memory.Synchronize(nullptr).ok());
    buffers_.push_back(*std::move(buffer));
    return FromDevicePtr<T>(buffers_.back().get());
  }
  template <class T = void>
  T* Poisoned(std::size_t bytes) {
    return Copy<T>(Bytes(bytes, std::byte{0xAB}));
  }
  Bytes Read(const void* from, std::size_t bytes) {
    Bytes to(bytes);
    DeviceMemory& memory = test_.dispatch->memory();
    EXPECT_TRUE(memory.Download(to.data(), ToDevicePtr(from), bytes, nullptr).ok());
    return to;
  }

  // A problem with its operands on the device.
  struct Problem {
    GemmArgs args;
    ProductFusion fusion;
    cuda_ops::FusedNormArgs norm;
    std::size_t d_bytes = 0;    // of what comes out
    std::size_t sum_bytes = 0;  // of the residual sum
    void* joined = nullptr;     // gated: gate and up
  };
  Problem Make(const Case& c) {
    Problem p;
    const Matrix x(DataType::kFloat32, c.m, c.k, 11), y(DataType::kFloat32, c.m, c.k, 12);
    std::vector<float> w = Normal(std::int64_t{c.n} * c.k, 13);
    for (float& value : w) value /= std::sqrt(static_cast<float>(c.k));
    const Matrix weight(DataType::kBfloat16, c.n, c.k, w), gamma(c.gamma, 1, c.k, 14);
    p.sum_bytes = x.bytes.size();
    p.norm.x = Copy(x.bytes);
    p.norm.x_type = DataType::kFloat32;
    if (c.adds) p.norm.y = Copy(y.bytes);
    p.norm.gamma = p.fusion.gamma = Copy(gamma.bytes);
    p.norm.gamma_type = p.fusion.gamma_type = c.gamma;
    p.norm.epsilon = p.fusion.epsilon = 1e-5f;
    p.norm.out = Poisoned(static_cast<std::size_t>(c.m) * c.k * 2);
    p.norm.out_type = DataType::kBfloat16;
    p.norm.rows = c.m;
    p.norm.width = c.k;
    p.fusion.adds = c.adds;
    p.fusion.gated = c.gated;
    p.args.operation.pdl = true;
    p.args.A = p.norm.out;
    p.args.Adesc = RowMajor(DataType::kBfloat16, c.m, c.k);
    p.args.B = Copy(weight.bytes);
    p.args.Bdesc = ColMajor(DataType::kBfloat16, c.k, c.n);
    p.args.Ddesc = RowMajor(c.values, c.m, c.n);
    if (c.bias) {
      const Matrix bias(DataType::kBfloat16, 1, c.n, 15);
      p.args.operation.bias = {Copy(bias.bytes), DataType::kBfloat16};
    }
    const std::size_t joined = static_cast<std::size_t>(c.m) * c.n * SizeOf(c.values);
    p.d_bytes = c.gated ? joined / 2 : joined;
    if (c.gated) p.joined = Poisoned(joined);
    return p;
  }

  // What one launch of each leaves at `sum` and `d`.
  void LaunchApart(const Case& c, const Problem& p, const GemmPlan& plan, float* sum, void* d) {
    const cuda_ops::LaunchStream stream{nullptr, true};
    cuda_ops::FusedNormArgs norm = p.norm;
    norm.sum = sum;
    ASSERT_EQ(cuda_ops::FusedNorm(norm, stream), cudaSuccess);
    LaunchPointers pointers;
    pointers.A = p.norm.out;
    pointers.D = c.gated ? p.joined : d;
    Workspace none;
    const Status launched = plan.Launch(pointers, none);
    ASSERT_TRUE(launched.ok()) << launched.ToString();
    if (!c.gated) return;
    cuda_ops::FusedSwiGluArgs swiglu;
    swiglu.gate = p.joined;
    swiglu.up = static_cast<std::byte*>(p.joined) + c.n / 2 * SizeOf(c.values);
    swiglu.stride = c.n;
    swiglu.type = c.values;
    swiglu.out = d;
    swiglu.rows = c.m;
    swiglu.cols = c.n / 2;
    ASSERT_EQ(cuda_ops::FusedSwiGlu(swiglu, stream), cudaSuccess);
  }

  // Every launch that fuses: how many there were.
  int Compare(const Case& c) {
    const Problem p = Make(c);
    const auto desc = Describe(p.args, test_.gemm->device().arch);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    auto *const sum = Poisoned<float>(p.sum_bytes), *const own_sum = Poisoned<float>(p.sum_bytes);
    int compared = 0;
    const Bytes poison(p.d_bytes + 256, std::byte{0xCD});
    void *const d = Copy(poison), *const own = Copy(poison);
    for (const LaunchSpec& spec : test_.gemm->Candidates(*desc)) {
      const auto* const kernel = dynamic_cast<const FusesProducts*>(spec.kernel);
      if (kernel == nullptr || !kernel->WhyFused(*desc, p.fusion, spec.splits).ok()) continue;
      const std::string what = Words(c) + " " + spec.kernel->id() + " splits " +
                               std::to_string(spec.splits) + (spec.serial ? " serial" : "");
      GemmArgs args = p.args;
      args.operation = AsLaunched(args.operation, spec);
      auto plan = test_.gemm->Plan(p.args, spec);
      auto fused = kernel->PrepareFused(args, p.fusion, spec.splits);
      EXPECT_TRUE(plan.ok() && fused.ok()) << what;
      if (!plan.ok() || !fused.ok()) continue;
      DeviceMemory& memory = test_.dispatch->memory();
      for (void* const to : {d, own})
        EXPECT_TRUE(memory.Upload(ToDevicePtr(to), poison.data(), poison.size(), nullptr).ok());
      LaunchApart(c, p, *plan, c.adds ? own_sum : nullptr, own);
      const FusedProductPointers pointers{.x = static_cast<const float*>(p.norm.x),
                                          .y = static_cast<const float*>(p.norm.y),
                                          .sum = c.adds && c.keeps_sum ? sum : nullptr,
                                          .D = d};
      EXPECT_EQ((*fused)->Launch(pointers, nullptr), cudaSuccess) << what;
      EXPECT_EQ(Read(d, poison.size()), Read(own, poison.size())) << what;
      if (pointers.sum != nullptr) {
        EXPECT_EQ(Read(sum, p.sum_bytes), Read(own_sum, p.sum_bytes)) << what;
      }
      ++compared;
      if (HasFailure()) break;
    }
    buffers_.clear();
    return compared;
  }

  void ExpectWaits(const Case& c, int runs);

  TestDispatch test_;
  std::vector<DeviceBuffer> buffers_;
};

TEST_F(FusedProducts, GiveTheBitsOfTheirParts) {
  constexpr DataType kF32 = DataType::kFloat32, kBf16 = DataType::kBfloat16;
  const Case cases[] = {
      {.m = 1, .n = 512, .k = 1024},
      {.m = 1, .n = 768, .k = 1024, .gated = true},
      {.m = 1, .n = 208, .k = 2048, .adds = false, .gamma = kF32},
      {.m = 1, .n = 272, .k = 4096, .gated = true, .keeps_sum = false, .values = kF32},
      {.m = 8, .n = 336, .k = 1024, .gated = true},
      {.m = 5, .n = 100, .k = 136, .bias = true, .values = kF32},
      {.m = 3, .n = 16, .k = 8, .gated = true, .gamma = DataType::kFloat16},
      {.m = 2, .n = 73, .k = 8200},
      {.m = 7, .n = 80, .k = 2056, .adds = false, .gated = true, .values = kF32},
      {.m = 4, .n = 96, .k = 520, .gamma = kF32, .values = kBf16},
  };
  int compared = 0;
  for (const Case& c : cases) {
    const int now = Compare(c);
    if (test_.gemm->device().arch == 900) {
      EXPECT_GT(now, 0) << Words(c);
    }
    compared += now;
    if (HasFailure()) return;
  }
  if (compared == 0) GTEST_SKIP() << "no kernel of this GPU fuses";
}

// The preceding kernel's results are read only after it has ended, and the next one finds ours.
void FusedProducts::ExpectWaits(const Case& c, int runs) {
  const Problem p = Make(c);
  const auto desc = Describe(p.args, test_.gemm->device().arch);
  ASSERT_TRUE(desc.ok());
  const auto specs = test_.gemm->Candidates(*desc);
  const auto found = std::ranges::find_if(specs, [&](const LaunchSpec& spec) {
    const auto* const kernel = dynamic_cast<const FusesProducts*>(spec.kernel);
    return kernel != nullptr && !spec.serial && kernel->WhyFused(*desc, p.fusion, spec.splits).ok();
  });
  if (found == specs.end()) GTEST_SKIP() << "no kernel of this GPU fuses";
  GemmArgs args = p.args;
  args.operation = AsLaunched(args.operation, *found);
  auto plan = test_.gemm->Plan(p.args, *found);
  auto fused = dynamic_cast<const FusesProducts&>(*found->kernel)
                   .PrepareFused(args, p.fusion, found->splits);
  ASSERT_TRUE(plan.ok() && fused.ok());
  const cuda_ops::LaunchStream stream{nullptr, true};
  auto* const x = static_cast<const float*>(p.norm.x);
  auto* const y = static_cast<const float*>(p.norm.y);
  Bytes results[2];
  for (const bool one : {false, true}) {
    float* sums[2] = {Poisoned<float>(p.sum_bytes), Poisoned<float>(p.sum_bytes)};
    auto* const d = Poisoned<std::byte>(runs * p.d_bytes);
    ASSERT_EQ(cuda_ops::ElementWise(cuda_ops::ElementOp::kAdd, DataType::kFloat32, x, y, sums[1],
                                    c.k, 0, 0, stream),
              cudaSuccess);
    // Each run's sum is the next one's x.
    for (int run = 0; run < runs; ++run) {
      const float* const from = sums[(run + 1) % 2];
      float* const to = sums[run % 2];
      std::byte* const out = d + static_cast<std::size_t>(run) * p.d_bytes;
      if (one) {
        ASSERT_EQ((*fused)->Launch({.x = from, .y = y, .sum = to, .D = out}, nullptr), cudaSuccess);
      } else {
        Problem apart = p;
        apart.norm.x = from;
        LaunchApart(c, apart, *plan, to, out);
      }
    }
    results[one] = Read(d, runs * p.d_bytes);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(FusedProducts, WaitForTheKernelBefore) { ExpectWaits({.m = 1, .n = 4096, .k = 1024}, 200); }

// The same for tools under which a launch takes long.
TEST_F(FusedProducts, WaitInAFewLaunches) { ExpectWaits({.m = 1, .n = 256, .k = 512}, 4); }

}  // namespace
}  // namespace culet
