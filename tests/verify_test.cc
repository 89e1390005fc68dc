// The conformance suite must catch broken kernels, and must pass right ones whatever the order of
// their sums. The broken ones are one plain FP32 kernel with one defect at a time.
#include "culet/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "culet/scratch.h"
#include "kernels/catalog.h"
#include "verify/check.h"

namespace culet {
namespace {

enum class Defect {
  kNone,
  kReversedSum,
  kHalf,
  kLosesLastOfK,
  kLosesKTail,
  kNoAlpha,
  kNoBeta,
  kNoBias,
  kBiasAlongOtherAxis,
  kWrongLastScale,
  kScaleOfNextBlock,
  kRowsSwapped,
  kIgnoresOrderOfA,
  kWritesBehindD,
  kWritesBeforeD,
  kWritesGap,
  kWritesInput,
  kLeavesLastUnwritten,
  kSwallowsNaN,
  kSpreadsNaN,
  kClampsInfinity,
  kReadsPadding,
  kSumsInBfloat16,
  kRoundsUp,
  kTruncates,
  kNotRepeatable,
  kDependsOnM,
  kRefusesSilently,
  kContradictsItself,
  kFailsToLaunch,
  kOnlyPreparedIsWrong,
  kWrongWhenSplit,
};

std::int64_t At(const MatrixLayout& layout, int row, int col) {
  return layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld;
}

std::string IdOf(Defect defect) { return "flawed/" + std::to_string(static_cast<int>(defect)); }

class FlawedKernel final : public ArgsKernel {
 public:
  // Takes the problems that `takes` names, all without one.
  explicit FlawedKernel(Defect defect, std::function<bool(const GemmDesc&)> takes = {})
      : ArgsKernel(Desc(defect), Info(defect)), defect_(defect), takes_(std::move(takes)) {}

  Feasibility why(const GemmDesc& desc) const noexcept override {
    if (takes_ && !takes_(desc)) return Feasibility::Refuse("the defect does not show here");
    if (defect_ == Defect::kRefusesSilently && desc.m > 16) return Feasibility::Refuse("");
    return ArgsKernel::why(desc);
  }
  bool is_feasible(const GemmDesc& desc) const noexcept override {
    return (!takes_ || takes_(desc)) && ArgsKernel::is_feasible(desc) &&
           !(defect_ == Defect::kContradictsItself && desc.m > 16);
  }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override {
    return defect_ == Defect::kWrongWhenSplit ? 3 : 1;
  }
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    GemmArgs changed = args;
    if (defect_ == Defect::kOnlyPreparedIsWrong) changed.operation.bias.data = nullptr;
    return ArgsKernel::Prepare(changed, swizzle, splits);
  }

  int Run(const GemmArgs& args, int, int splits, Workspace&, cudaStream_t) override {
    if (defect_ == Defect::kFailsToLaunch) return static_cast<int>(StatusCode::kInternal);
    m_ = args.Ddesc.rows, n_ = args.Ddesc.cols, k_ = args.Adesc.cols;
    Decode(args);
    ++launches_;
    for (int row = 0; row < m_; ++row) {
      Sum(row, splits, sums_);
      if (defect_ == Defect::kSpreadsNaN && row > 0) Sum(row - 1, 1, sums_before_);
      for (int col = 0; col < n_; ++col) {
        const bool last = row == m_ - 1 && col == n_ - 1;
        if (last && defect_ == Defect::kLeavesLastUnwritten) continue;
        Store(args, row, col, Finish(args, row, col));
      }
    }
    Misbehave(args);
    return 0;
  }

 private:
  static KernelDesc Desc(Defect defect) {
    KernelDesc desc;
    if (defect == Defect::kNone || defect == Defect::kNotRepeatable) {
      desc.determinism = Determinism::kRepeatable;
    }
    if (defect == Defect::kReversedSum || defect == Defect::kDependsOnM) {
      desc.determinism = Determinism::kBatchInvariant;
    }
    return desc;
  }
  static KernelInfo Info(Defect defect) {
    KernelInfo info;
    info.name = IdOf(defect);
    return info;
  }

  // Both operands as FP32, scaled, row by row.
  void Decode(const GemmArgs& args) {
    const auto load = [](const void* data, const MatrixLayout& layout, int row, int col) {
      return static_cast<float>(LoadAsDouble(data, layout.type, At(layout, row, col)));
    };
    MatrixLayout a_layout = args.Adesc;
    // m <= k keeps the wrong addresses inside A.
    if (defect_ == Defect::kIgnoresOrderOfA && m_ <= k_) a_layout.order = Order::kRowMajor;
    a_.resize(static_cast<std::size_t>(m_) * k_);
    b_.resize(static_cast<std::size_t>(n_) * k_);
    const ScaleGroup of_a = ScaleGroupOf(args.operation.quant_a, m_, k_);
    const ScaleGroup of_b = ScaleGroupOf(args.operation.quant_b, n_, k_);
    for (int row = 0; row < m_; ++row) {
      for (int i = 0; i < k_; ++i) {
        float scale = 1;
        if (args.U != nullptr) {
          scale = load(args.U, args.Udesc, row / of_a.outer, ScaleBlock(i, of_a.k));
        }
        a_[row * k_ + i] = scale * load(args.A, a_layout, row, i);
      }
    }
    for (int col = 0; col < n_; ++col) {
      for (int i = 0; i < k_; ++i) {
        float scale = 1;
        if (args.V != nullptr) scale = load(args.V, args.Vdesc, i / of_b.k, col / of_b.outer);
        b_[i * n_ + col] = scale * load(args.B, args.Bdesc, i, col);
      }
    }
    if (defect_ != Defect::kSwallowsNaN) return;
    for (float& value : a_) value = std::isnan(value) ? 480.0f : value;
    for (float& value : b_) value = std::isnan(value) ? 480.0f : value;
  }

  int ScaleBlock(int i, int group) const {
    const int block = i / group, last = (k_ - 1) / group;
    if (defect_ == Defect::kWrongLastScale && block == last && last > 0) return last - 1;
    // One element early into the next block: the classic off-by-one of a prefetched scale.
    if (defect_ == Defect::kScaleOfNextBlock) return std::min((i + 1) / group, last);
    return block;
  }

  // Each column's sum of one row, in the order of k.
  void Sum(int row, int splits, std::vector<float>& sums) const {
    if (defect_ == Defect::kRowsSwapped && m_ >= 2 && row < 2) row = 1 - row;
    int k = k_;
    if (defect_ == Defect::kLosesLastOfK && k > 1) --k;
    if (defect_ == Defect::kLosesKTail && k > 8) k = k / 8 * 8;
    if (defect_ == Defect::kWrongWhenSplit && splits > 1) k -= k % splits;
    bool reversed = defect_ == Defect::kReversedSum;
    if (defect_ == Defect::kNotRepeatable) reversed = launches_ % 2 != 0;
    if (defect_ == Defect::kDependsOnM) reversed = m_ > 1;
    sums.assign(static_cast<std::size_t>(n_), 0);
    for (int i = 0; i < k; ++i) {
      const int at = reversed ? k - 1 - i : i;
      const float a = a_[static_cast<std::size_t>(row) * k_ + at];
      const float* b = &b_[static_cast<std::size_t>(at) * n_];
      for (int col = 0; col < n_; ++col) sums[col] += a * b[col];
      if (defect_ != Defect::kSumsInBfloat16) continue;
      for (float& sum : sums) sum = Bfloat16ToFloat(FloatToBfloat16(sum));
    }
  }

  double Finish(const GemmArgs& args, int row, int col) const {
    float value = (defect_ == Defect::kNoAlpha ? 1.0f : args.alpha) * sums_[col];
    if (defect_ == Defect::kHalf) value *= 0.5f;
    if (args.beta != 0 && defect_ != Defect::kNoBeta) {
      value += args.beta *
               static_cast<float>(LoadAsDouble(args.C, args.Cdesc.type, At(args.Cdesc, row, col)));
    }
    const Bias& bias = args.operation.bias;
    if (bias.data != nullptr && defect_ != Defect::kNoBias) {
      int index = bias.axis == Bias::Axis::kN ? col : row;
      if (defect_ == Defect::kBiasAlongOtherAxis) {
        index = bias.axis == Bias::Axis::kN ? row % n_ : col % m_;
      }
      value += static_cast<float>(LoadAsDouble(bias.data, bias.type, index));
    }
    if (defect_ == Defect::kClampsInfinity) value = std::clamp(value, -1e37f, 1e37f);
    if (defect_ == Defect::kSpreadsNaN && row > 0) value += 0 * sums_before_[col];
    if (defect_ == Defect::kReadsPadding && args.Adesc.order == Order::kRowMajor && k_ % 8 != 0) {
      // A vector load past the row's end, multiplied by zero.
      value +=
          0 * static_cast<float>(LoadAsDouble(args.A, args.Adesc.type, At(args.Adesc, row, k_)));
    }
    return value;
  }

  void Store(const GemmArgs& args, int row, int col, double value) const {
    const DataType type = args.Ddesc.type;
    // Half a unit is added before rounding: wrong wherever rounding should go down.
    if (defect_ == Defect::kRoundsUp && type != DataType::kFloat32 && std::isfinite(value)) {
      value *= 1 + std::ldexp(1.0, -PrecisionOf(type));
    }
    if (defect_ == Defect::kTruncates && type == DataType::kBfloat16) {
      const auto bits = static_cast<float>(value);
      std::uint32_t word = 0;
      std::memcpy(&word, &bits, 4);
      const auto half = static_cast<std::uint16_t>(word >> 16);
      std::memcpy(static_cast<std::uint16_t*>(args.D) + At(args.Ddesc, row, col), &half, 2);
      return;
    }
    StoreFromDouble(args.D, type, At(args.Ddesc, row, col), value);
  }

  void Misbehave(const GemmArgs& args) const {
    const MatrixLayout& d = args.Ddesc;
    const int inner = d.order == Order::kRowMajor ? n_ : m_, lines = m_ * n_ / inner;
    if (defect_ == Defect::kWritesBehindD) {
      StoreFromDouble(args.D, d.type, (lines - 1) * d.ld + inner, 0);
    }
    if (defect_ == Defect::kWritesBeforeD) StoreFromDouble(args.D, d.type, -1, 0);
    if (defect_ == Defect::kWritesGap && lines > 1 && d.ld > inner) {
      StoreFromDouble(args.D, d.type, inner, 0);
    }
    if (defect_ == Defect::kWritesInput) {
      StoreFromDouble(const_cast<void*>(args.A), args.Adesc.type, 0, 3);
    }
  }

  Defect defect_;
  std::function<bool(const GemmDesc&)> takes_;
  int m_ = 0, n_ = 0, k_ = 0;
  int launches_ = 0;
  std::vector<float> a_, b_, sums_, sums_before_;
};

VerifyReport VerifyOne(std::unique_ptr<Kernel> kernel, VerifyOptions options = {}) {
  Registry registry;
  EXPECT_TRUE(registry.Add(std::move(kernel)).ok());
  options.quick = true;
  return Verify(registry, HostDevice(), options);
}
VerifyReport VerifyOne(Defect defect) { return VerifyOne(std::make_unique<FlawedKernel>(defect)); }

std::string FirstMessage(const VerifyReport& report) {
  return report.failures.empty() ? "" : report.failures.front().message;
}

// Codes of weights: of 4 bits, and int8.
bool HoldsCodes(DataType type) { return IsSubByte(type) || type == DataType::kInt8; }

// Problems that the flawed kernels leave to the reference: gated epilogues, batches, zero points,
// codes of either operand.
bool IsSpecial(const GemmDesc& d) {
  return d.epilogue != Epilogue::kNone || d.num != 1 || d.a.zero_type != DataType::kNull ||
         d.b.zero_type != DataType::kNull || HoldsCodes(d.a.type) || HoldsCodes(d.b.type);
}

std::vector<GemmDesc> PlainProblems(bool quick) {
  std::vector<GemmDesc> problems = ConformanceProblems(0, quick);
  std::erase_if(problems, IsSpecial);
  return problems;
}

TEST(Verify, RightKernelsPassInAnyOrderOfSummation) {
  const int problems = static_cast<int>(PlainProblems(true).size());
  for (const Defect right : {Defect::kNone, Defect::kReversedSum}) {
    const VerifyReport report = VerifyOne(right);
    EXPECT_EQ(report.passed, problems);
    EXPECT_TRUE(report.ok()) << ToString(report.failures.front().desc) << ": "
                             << FirstMessage(report);
  }
}

// `affected` says on which problems the defect changes anything; there it must always be seen.
struct Case {
  Defect defect;
  std::string message;  // part of it
  std::function<bool(const GemmDesc&)> affected;
};
bool Always(const GemmDesc&) { return true; }

TEST(Verify, EveryDefectIsCaughtWhereverItShows) {
  const auto scaled = [](const GemmDesc& d) { return HasGroupSize(d.a.quant.type); };
  const auto narrow = [](const GemmDesc& d) { return d.d.type != DataType::kFloat32; };
  const Case cases[] = {
      {Defect::kHalf, "exact integers", Always},
      {Defect::kNoAlpha, "exact integers", Always},
      {Defect::kLosesLastOfK, "exact integers",
       [&](const GemmDesc& d) { return d.k > 1 && (!narrow(d) || d.m * d.n > 100); }},
      {Defect::kLosesKTail, "exact integers",
       [&](const GemmDesc& d) {
         return d.k > 8 && d.k % 8 != 0 && (!narrow(d) || d.m * d.n > 100);
       }},
      {Defect::kNoBeta, "exact integers",
       [](const GemmDesc& d) { return d.c.type != DataType::kNull && d.m * d.n > 100; }},
      {Defect::kNoBias, "exact integers",
       [](const GemmDesc& d) { return d.type_bias != DataType::kNull && d.m * d.n > 100; }},
      {Defect::kBiasAlongOtherAxis, "exact integers",
       [](const GemmDesc& d) {
         return d.type_bias != DataType::kNull && d.m > 1 && d.n > 1 && d.m * d.n > 100;
       }},
      {Defect::kIgnoresOrderOfA, "exact integers",
       [](const GemmDesc& d) {
         return d.a.order == Order::kColMajor && d.m > 1 && d.m <= d.k && d.n >= 16;
       }},
      {Defect::kWrongLastScale, "exact integers",
       [&](const GemmDesc& d) { return scaled(d) && d.k > 128 && d.m > 1 && d.n > 1; }},
      {Defect::kScaleOfNextBlock, "exact integers",
       [&](const GemmDesc& d) { return scaled(d) && d.k > 128 && d.m > 1 && d.n > 16; }},
      {Defect::kRowsSwapped, "exact integers",
       [](const GemmDesc& d) { return d.m > 1 && d.n > 16 && d.k > 1; }},
      {Defect::kWritesBehindD, "memory outside D", Always},
      {Defect::kWritesBeforeD, "memory outside D", Always},
      {Defect::kWritesGap, "memory outside D",
       [](const GemmDesc& d) { return d.m > 1 && d.n > 1; }},
      {Defect::kWritesInput, "memory outside D", Always},
      {Defect::kLeavesLastUnwritten, "1 elements of D were not written", Always},
      {Defect::kSwallowsNaN, "extreme values",
       [](const GemmDesc& d) { return d.m >= 3 || d.n >= 3; }},
      {Defect::kSpreadsNaN, "extreme values", [](const GemmDesc& d) { return d.m >= 3; }},
      {Defect::kClampsInfinity, "extreme values",
       [](const GemmDesc& d) {
         return d.a.type != DataType::kFloat8_e4m3 && d.d.type != DataType::kFloat16 && d.m >= 4;
       }},
      {Defect::kReadsPadding, "",
       [](const GemmDesc& d) { return d.a.order == Order::kRowMajor && d.k % 8 != 0; }},
      {Defect::kSumsInBfloat16, "", [](const GemmDesc& d) { return d.k > 100 && d.m * d.n > 16; }},
      {Defect::kRoundsUp, "",
       [&](const GemmDesc& d) { return narrow(d) && d.k > 100 && d.m * d.n > 100; }},
      {Defect::kTruncates, "",
       [](const GemmDesc& d) {
         return d.d.type == DataType::kBfloat16 && d.k > 100 && d.m * d.n > 100;
       }},
      {Defect::kNotRepeatable, "different bits",
       [&](const GemmDesc& d) { return !narrow(d) && d.k > 100 && d.m * d.n > 100; }},
      {Defect::kDependsOnM, "batch-invariant",
       [&](const GemmDesc& d) {
         return !narrow(d) && d.d.order == Order::kRowMajor && d.m > 1 && d.k > 100 && d.n > 16;
       }},
      {Defect::kRefusesSilently, "without a reason", [](const GemmDesc& d) { return d.m > 16; }},
      {Defect::kContradictsItself, "contradict", [](const GemmDesc& d) { return d.m > 16; }},
      {Defect::kFailsToLaunch, "refused the launch (INTERNAL)", Always},
      {Defect::kOnlyPreparedIsWrong, "normal data",
       [](const GemmDesc& d) { return d.type_bias != DataType::kNull; }},
      {Defect::kWrongWhenSplit, "splits",
       [](const GemmDesc& d) { return d.k >= 16 && d.k % 6 != 0 && d.m * d.n > 100; }},
  };
  Registry registry;
  for (const Case& c : cases) {
    // That one is compared with itself at a smaller m, where the defect does not show.
    const auto takes = c.defect == Defect::kDependsOnM ? Always : c.affected;
    ASSERT_TRUE(registry.Add(std::make_unique<FlawedKernel>(c.defect, takes)).ok());
  }
  VerifyOptions options;
  options.quick = true;
  std::map<std::string, std::map<GemmDesc, std::string>> caught;  // messages by kernel
  for (const VerifyFailure& failure : Verify(registry, HostDevice(), options).failures) {
    caught[failure.kernel_id][failure.desc] = failure.message;
  }
  for (const Case& c : cases) {
    const auto& failures = caught[IdOf(c.defect)];
    int affected = 0, told = 0;
    for (const GemmDesc& desc : PlainProblems(true)) {
      if (!c.affected(desc)) continue;
      ++affected;
      const auto failure = failures.find(desc);
      ASSERT_NE(failure, failures.end()) << IdOf(c.defect) << " escaped in " << ToString(desc);
      told += failure->second.find(c.message) != std::string::npos;
    }
    EXPECT_GE(affected, 2) << "the problems hardly exercise " << IdOf(c.defect);
    EXPECT_EQ(told, affected) << IdOf(c.defect) << ": " << failures.begin()->second;
  }
}

TEST(Verify, MessagesSayHowToRepeat) {
  const VerifyReport report = VerifyOne(Defect::kHalf);
  EXPECT_EQ(report.failures.front().kernel_id, IdOf(Defect::kHalf));
  EXPECT_NE(FirstMessage(report).find("culet verify --kernel " + IdOf(Defect::kHalf) + " --quick"),
            std::string::npos);
  EXPECT_NE(FirstMessage(report).find("but the reference is"), std::string::npos);
}

TEST(Verify, CountsRefusalsAndWhatTheBudgetLeavesOut) {
  class Narrow final : public ArgsKernel {
   public:
    Narrow() : ArgsKernel({}, {.name = "narrow"}) {}
    Feasibility why(const GemmDesc&) const noexcept override {
      return Feasibility::Refuse("takes nothing");
    }
    int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }
  };
  const int problems = static_cast<int>(ConformanceProblems(0, true).size());
  const VerifyReport refused = VerifyOne(std::make_unique<Narrow>());
  EXPECT_EQ(refused.refused, problems);
  EXPECT_EQ(refused.failed, 0);
  EXPECT_FALSE(refused.ok()) << "a suite that checked nothing must not be ok";

  VerifyOptions options;
  options.budget_s = 1e-9;
  const VerifyReport late = VerifyOne(std::make_unique<FlawedKernel>(Defect::kNone), options);
  EXPECT_EQ(late.left_out, problems);
  EXPECT_FALSE(late.ok());
}

TEST(Verify, TheCallerMayEndTheRunAndChooseKernels) {
  VerifyOptions options;
  int cases = 0;
  options.on_case = [&](const std::string& id, const GemmDesc&) {
    EXPECT_EQ(id, IdOf(Defect::kNone));
    return ++cases <= 3;
  };
  EXPECT_EQ(VerifyOne(std::make_unique<FlawedKernel>(Defect::kNone), options).passed, 3);
  options = {};
  options.kernel = "another";
  EXPECT_EQ(VerifyOne(std::make_unique<FlawedKernel>(Defect::kNone), options).passed, 0);
}

const std::set<int> kPairM = {1,  2,  3,  4,  5,  7,  8,   9,   15, 16,
                              17, 31, 32, 33, 64, 65, 127, 128, 129};
const std::set<int> kPairN = {1,  2,  3,  7,   8,   15,  16,  17,  31,  33,
                              63, 64, 65, 127, 128, 129, 255, 256, 257, 300};
const std::set<int> kPairK = {1,  2,  3,  7,   8,   15,  16,  17,  33,  63,
                              64, 65, 96, 127, 128, 129, 255, 256, 257, 385};

TEST(Verify, TellsAccuracyAndLimitsIt) {
  const DeviceInfo device = HostDevice();
  VerifyOptions options;
  options.kernel = "cpu_reference";
  options.quick = true;
  const VerifyReport report = Verify(Registry::Builtin(device), device, options);
  ASSERT_FALSE(report.accuracy.empty());
  for (const VerifyAccuracy& a : report.accuracy) {
    EXPECT_EQ(a.family, "cpu_reference");
    EXPECT_GT(a.problems, 0);
    EXPECT_LE(a.relative_l2, a.limit);
    // One rounding of an exact product costs 0.4225 * 2^-8, of a gated one, where few large values
    // weigh more, up to a twentieth more.
    if (a.type_d == DataType::kBfloat16) {
      EXPECT_GT(a.relative_l2, 1.6e-3);
      EXPECT_LT(a.relative_l2, 1.75e-3);
    }
  }

  GemmDesc fp8;
  fp8.arch = 900;
  fp8.a.type = fp8.b.type = DataType::kFloat8_e4m3;
  fp8.k = 7168;
  fp8.d.type = DataType::kBfloat16;
  constexpr Accumulator kHopper{14, 128};
  EXPECT_LE(RelativeL2Limit(fp8, kHopper), 1.75e-3);
  fp8.d.type = DataType::kFloat32;
  EXPECT_LE(RelativeL2Limit(fp8, kHopper), 3e-4);
  EXPECT_LE(RelativeL2Limit(fp8), 9e-4);  // each of 7168 FP32 roundings at its worst
}

// One of the formats that models have, with their scales, on all multiprocessors.
bool IsUsual(const GemmDesc& d) {
  const auto e4m3 = [](DataType type) { return type == DataType::kFloat8_e4m3; };
  if (d.sm_budget != 0 || IsSpecial(d)) return false;
  if (e4m3(d.a.type) && e4m3(d.b.type)) {
    if (d.a.scale_type != DataType::kFloat32) return false;
    if (!HasGroupSize(d.a.quant.type))
      return d.a.quant.type != QuantType::kNone && d.a.quant == d.b.quant;
    return d.a.quant == QuantDesc{QuantType::kK, 128} && HasGroupSize(d.b.quant.type) &&
           d.b.quant.group_size == 128;
  }
  return d.a.quant == QuantDesc{} && d.b.quant == QuantDesc{} &&
         (d.a.type == d.b.type || (d.a.type == DataType::kFloat32 && !e4m3(d.b.type)));
}

TEST(ConformanceProblems, HoldUncommonFormatsInEveryOrder) {
  std::set<int> orders;
  int mixed = 0, unscaled = 0, other_groups = 0, other_scales = 0, budgets = 0;
  for (const GemmDesc& d : ConformanceProblems(0, false)) {
    if (IsUsual(d)) continue;
    orders.insert(static_cast<int>(d.a.order) * 4 + static_cast<int>(d.b.order) * 2 +
                  static_cast<int>(d.d.order));
    const bool e4m3 = d.a.type == DataType::kFloat8_e4m3;
    mixed += d.a.type != d.b.type;
    unscaled += e4m3 && d.a.scale_type == DataType::kNull;
    other_groups += d.a.quant.group_size % 128 != 0;
    other_scales += d.a.scale_type != DataType::kNull && d.a.scale_type != DataType::kFloat32;
    budgets += d.sm_budget > 0;
  }
  EXPECT_EQ(orders.size(), 8u);
  for (const int count : {mixed, unscaled, other_groups, other_scales, budgets}) {
    EXPECT_GE(count, 5);
  }
}

TEST(ConformanceProblems, HoldEveryPairOfWhatMatters) {
  const std::vector<GemmDesc> problems = ConformanceProblems(0, false);
  EXPECT_EQ(problems, ConformanceProblems(0, false)) << "not deterministic";
  EXPECT_GE(problems.size(), 300u);
  EXPECT_LE(problems.size(), 1300u);
  EXPECT_EQ((std::set<GemmDesc>(problems.begin(), problems.end()).size()), problems.size());
  // The orders of every engine, with all sizes: no two choices may miss each other.
  using Values = std::array<int, 9>;
  std::vector<Values> rows;
  std::set<std::array<int, 5>> orders;
  for (const GemmDesc& d : problems) {
    if (!IsUsual(d)) continue;
    const std::array<int, 3> order = {static_cast<int>(d.a.order), static_cast<int>(d.b.order),
                                      static_cast<int>(d.d.order)};
    orders.insert(
        {static_cast<int>(d.a.type), static_cast<int>(d.b.type), order[0], order[1], order[2]});
    if (order != std::array<int, 3>{1, 0, 1}) continue;
    if (!kPairM.contains(d.m) || !kPairN.contains(d.n) || !kPairK.contains(d.k)) continue;
    rows.push_back(
        {static_cast<int>(d.a.type) * 8 + static_cast<int>(d.b.type), static_cast<int>(d.d.type),
         d.m, d.n, d.k, d.c.type != DataType::kNull,
         static_cast<int>(d.type_bias != DataType::kNull) * (1 + static_cast<int>(d.bias_axis)),
         d.b.align == 16, d.d.align == 16});
  }
  EXPECT_EQ(orders.size(), 48u) << "of 6 formats x 8 orders";
  for (std::size_t a = 0; a < Values{}.size() - 1; ++a) {
    for (std::size_t b = a + 1; b < Values{}.size(); ++b) {
      if (a == 7) continue;  // B on 16 bytes and D not, but never the other way round
      std::set<int> as, bs;
      std::set<std::pair<int, int>> pairs;
      for (const Values& row : rows) {
        as.insert(row[a]);
        bs.insert(row[b]);
        pairs.insert({row[a], row[b]});
      }
      EXPECT_EQ(pairs.size(), as.size() * bs.size()) << "factors " << a << " and " << b;
    }
  }
  std::array<std::set<int>, 3> sizes;
  for (const Values& row : rows) {
    for (int i = 0; i < 3; ++i) sizes[i].insert(row[2 + i]);
  }
  EXPECT_EQ(sizes, (std::array<std::set<int>, 3>{kPairM, kPairN, kPairK}));
}

TEST(ConformanceProblems, HoldTheProductsOfAModel) {
  // What a matrix unit's kernel takes at all: aligned rows, the usual output, nothing added.
  std::set<std::array<int, 2>> mn, mk, nk;
  std::set<std::array<int, 3>> scales;  // m below or above a GPU's tiles, orders of U and V
  for (const GemmDesc& d : ConformanceProblems(900, false)) {
    const bool plain = d.a.type == DataType::kFloat8_e4m3 && d.d.type == DataType::kBfloat16 &&
                       d.c.type == DataType::kNull && d.type_bias == DataType::kNull &&
                       d.a.align == 16 && d.b.align == 16 && d.d.align == 16 && d.n % 8 == 0 &&
                       d.k % 16 == 0 && d.a.order == Order::kRowMajor &&
                       d.b.order == Order::kColMajor && d.d.order == Order::kRowMajor;
    if (!plain) continue;
    mn.insert({d.m, d.n});
    mk.insert({d.m, d.k});
    nk.insert({d.n, d.k});
    scales.insert(
        {d.m > 128, static_cast<int>(d.a.scale_order), static_cast<int>(d.b.scale_order)});
  }
  EXPECT_GE(mn.size(), 180u);
  EXPECT_GE(mk.size(), 150u);
  EXPECT_GE(nk.size(), 120u);
  EXPECT_EQ(scales.size(), 8u);
}

TEST(ConformanceProblems, TheBoundsAreSharp) {
  // A comparison says something only where the reference is far larger than the bound.
  int dull = 0, problems = 0;
  for (const GemmDesc& desc : ConformanceProblems(0, false)) {
    if (desc.n > 300 || desc.m * desc.n < 4 || IsSpecial(desc)) continue;
    auto scratch =
        ScratchProblem::Create(HostDevice(), desc, {.alpha = 0.7f, .beta = -1.3f, .stop = {}});
    ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
    const auto report = scratch->Compare();
    ASSERT_TRUE(report.ok());
    ++problems;
    dull += report->relative_bound > 0.02;
  }
  EXPECT_GT(problems, 300);
  EXPECT_EQ(dull, 0);
}

}  // namespace
}  // namespace culet
