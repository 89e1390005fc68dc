// Problems of the SIMD tests: operands in guarded memory, and what their product must be in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "culet/desc.h"
#include "culet/kernel.h"

namespace culet::simd_test {

using enum DataType;

// One problem, as a test states it.
struct Case {
  DataType a = kFloat32, b = kFloat32, d = kFloat32;
  int m = 1, n = 1, k = 1;
  Order order_a = Order::kRowMajor, order_b = Order::kColMajor;
  int pad = 0;     // elements between rows
  int offset = 0;  // elements between an aligned address and each operand
  float alpha = 1.0f, beta = 0.0f;
  DataType c = kNull;  // kNull with beta: C is D itself
  DataType bias = kNull;
  Bias::Axis bias_axis = Bias::Axis::kN;
  Order order_u = Order::kRowMajor, order_v = Order::kColMajor;
  Order order_d = Order::kRowMajor, order_c = Order::kRowMajor;
  int sm_budget = 0;
  QuantDesc quant_a = {QuantType::kK, 128}, quant_b = {QuantType::kB, 128};  // of scaled ones

  ScaleGroup group_a() const { return ScaleGroupOf(quant_a, m, k); }
  ScaleGroup group_b() const { return ScaleGroupOf(quant_b, n, k); }
  bool scaled() const { return b == kFloat8_e4m3; }
};

inline void PrintTo(const Case& c, std::ostream* os) {
  *os << ToString(c.a) << " x " << ToString(c.b) << " -> " << ToString(c.d) << " m=" << c.m
      << " n=" << c.n << " k=" << c.k << " A " << ToString(c.order_a) << " B "
      << ToString(c.order_b) << " pad=" << c.pad << " offset=" << c.offset << " alpha=" << c.alpha
      << " beta=" << c.beta << " C " << ToString(c.c) << " bias " << ToString(c.bias) << " D "
      << ToString(c.order_d);
  if (c.scaled()) *os << " scales " << ToString(c.quant_a.type) << " " << ToString(c.quant_b.type);
}

// A matrix in memory of its own: guard zones of a known byte around it, and between its rows.
class Matrix {
 public:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::uint8_t kGuardByte = 0xa5;

  Matrix() = default;
  Matrix(DataType type, Order order, int rows, int cols, int pad, int offset) {
    layout_ = order == Order::kRowMajor ? RowMajor(type, rows, cols, cols + pad)
                                        : ColMajor(type, rows, cols, rows + pad);
    const int outer = order == Order::kRowMajor ? rows : cols;
    const std::size_t bytes = static_cast<std::size_t>(outer * layout_.ld) * SizeOf(type);
    start_ = kGuard + static_cast<std::size_t>(offset) * SizeOf(type);
    bytes_.assign((start_ + bytes + kGuard + 63) / 64, Line{});
    std::memset(bytes_.data(), kGuardByte, bytes_.size() * sizeof(Line));
  }

  const MatrixLayout& layout() const { return layout_; }
  std::uint8_t* raw() { return reinterpret_cast<std::uint8_t*>(bytes_.data()); }
  void* data() { return bytes_.empty() ? nullptr : raw() + start_; }
  const void* data() const { return const_cast<Matrix*>(this)->data(); }

  std::int64_t index(int row, int col) const {
    return layout_.order == Order::kRowMajor ? row * layout_.ld + col : row + col * layout_.ld;
  }
  double at(int row, int col) const { return LoadAsDouble(data(), layout_.type, index(row, col)); }
  void set(int row, int col, double value) {
    StoreFromDouble(data(), layout_.type, index(row, col), value);
  }
  template <class F>
  void Fill(F&& value) {
    for (int r = 0; r < layout_.rows; ++r) {
      for (int c = 0; c < layout_.cols; ++c) set(r, c, value());
    }
  }

  // Whether every byte that is no element is as the constructor wrote it.
  bool GuardsIntact() {
    std::vector<bool> element(bytes_.size() * sizeof(Line));
    for (int r = 0; r < layout_.rows; ++r) {
      for (int c = 0; c < layout_.cols; ++c) {
        const std::size_t first =
            start_ + static_cast<std::size_t>(index(r, c)) * SizeOf(layout_.type);
        for (std::size_t i = 0; i < SizeOf(layout_.type); ++i) element[first + i] = true;
      }
    }
    for (std::size_t i = 0; i < element.size(); ++i) {
      if (!element[i] && raw()[i] != kGuardByte) return false;
    }
    return true;
  }

 private:
  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  MatrixLayout layout_;
  std::size_t start_ = 0;
  std::vector<Line> bytes_;
};

enum class Data { kIntegers, kNormal };

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// A problem in memory, and its expected result.
class Problem {
 public:
  Problem(const Case& c, Data data, unsigned seed = 1) : case_(c), data_(data), random_(seed) {
    a_ = Matrix(c.a, c.order_a, c.m, c.k, c.pad, c.offset);
    b_ = Matrix(c.b, c.order_b, c.k, c.n, c.pad, c.offset);
    d_ = Matrix(c.d, c.order_d, c.m, c.n, c.pad, c.offset);
    a_.Fill([&] { return Value(3); });
    b_.Fill([&] { return Value(3); });
    d_.Fill([] { return std::numeric_limits<double>::quiet_NaN(); });  // poison
    if (c.scaled()) {
      const ScaleGroup a = c.group_a(), b = c.group_b();
      u_ = Matrix(kFloat32, c.order_u, CeilDiv(c.m, a.outer), CeilDiv(c.k, a.k), c.pad, c.offset);
      v_ = Matrix(kFloat32, c.order_v, CeilDiv(c.k, b.k), CeilDiv(c.n, b.outer), c.pad, c.offset);
      u_.Fill([&] { return Scale(); });
      v_.Fill([&] { return Scale(); });
    }
    if (c.beta != 0) {
      if (c.c == kNull) {
        d_.Fill([&] { return Value(8); });
        c_values_ = d_;
      } else {
        c_values_ = Matrix(c.c, c.order_c, c.m, c.n, c.pad + 1, c.offset);
        c_values_.Fill([&] { return Value(8); });
      }
    }
    if (c.bias != kNull) {
      bias_ = Matrix(c.bias, Order::kRowMajor, 1, c.bias_axis == Bias::Axis::kN ? c.n : c.m, 0,
                     c.offset);
      bias_.Fill([&] { return Value(8); });
    }
  }

  void set_sm_budget(int threads) { case_.sm_budget = threads; }
  void set_variant(int variant) { variant_ = variant; }
  Matrix& a() { return a_; }
  Matrix& b() { return b_; }
  Matrix& d() { return d_; }
  Matrix& u() { return u_; }
  Matrix& v() { return v_; }

  GemmArgs Args() {
    GemmArgs args;
    args.alpha = case_.alpha;
    args.beta = case_.beta;
    args.A = a_.data();
    args.Adesc = a_.layout();
    args.B = b_.data();
    args.Bdesc = b_.layout();
    args.D = d_.data();
    args.Ddesc = d_.layout();
    args.operation.sm_budget = case_.sm_budget;
    args.operation.variant = variant_;
    if (case_.scaled()) {
      args.operation.quant_a = case_.quant_a;
      args.operation.quant_b = case_.quant_b;
      args.U = u_.data();
      args.Udesc = u_.layout();
      args.V = v_.data();
      args.Vdesc = v_.layout();
    }
    if (case_.beta != 0) {
      args.C = case_.c == kNull ? d_.data() : c_values_.data();
      args.Cdesc = c_values_.layout();
    }
    if (case_.bias != kNull) {
      args.operation.bias = {bias_.data(), case_.bias, case_.bias_axis};
    }
    return args;
  }

  // All elements in double, and the sums of the magnitudes that went into them. Computed once, for
  // copies too.
  void ComputeExpected() {
    const auto k = static_cast<std::size_t>(case_.k);
    const ScaleGroup of_a = case_.group_a(), of_b = case_.group_b();
    std::vector<double> a(k * static_cast<std::size_t>(case_.m)), column(k);
    for (int r = 0; r < case_.m; ++r) {
      for (std::size_t i = 0; i < k; ++i) {
        const int at = static_cast<int>(i);
        a[static_cast<std::size_t>(r) * k + i] =
            a_.at(r, at) * (case_.scaled() ? u_.at(r / of_a.outer, at / of_a.k) : 1.0);
      }
    }
    expected_.resize(static_cast<std::size_t>(case_.m) * static_cast<std::size_t>(case_.n));
    for (int c = 0; c < case_.n; ++c) {
      for (std::size_t i = 0; i < k; ++i) {
        const int at = static_cast<int>(i);
        column[i] = b_.at(at, c) * (case_.scaled() ? v_.at(at / of_b.k, c / of_b.outer) : 1.0);
      }
      for (int r = 0; r < case_.m; ++r) {
        const double* row = &a[static_cast<std::size_t>(r) * k];
        double sum = 0, magnitude = 0;
        for (std::size_t i = 0; i < k; ++i) {
          sum += row[i] * column[i];
          magnitude += std::abs(row[i] * column[i]);
        }
        expected_[Flat(r, c)] = WithEpilogue(r, c, sum, magnitude);
      }
    }
  }

  // Runs `kernel`; one sentence about what went wrong, or empty.
  std::string Run(Kernel& kernel) {
    const GemmArgs args = Args();
    const Result<GemmDesc> desc = Describe(args, 0);
    if (!desc.ok()) return desc.status().ToString();
    if (const Feasibility why = kernel.why(*desc); !why.ok()) {
      return std::string("refused: ") + why.reason();
    }
    const WorkspaceSize size = kernel.workspace_size(*desc, 0, 1);
    Buffer buffer(size.total());
    Result<Workspace> workspace = InitWorkspace(size, buffer.data(), size.total());
    if (!workspace.ok()) return workspace.status().ToString();
    const Status status = LaunchKernel(kernel, args, 0, 1, *workspace, nullptr);
    if (!status.ok()) return "returned " + status.ToString();
    if (!buffer.GuardIntact()) return "wrote beyond its workspace";
    if (!d_.GuardsIntact()) return "wrote outside D";
    return {};
  }

  // The same, and compares with ComputeExpected.
  std::string Check(Kernel& kernel) {
    if (std::string wrong = Run(kernel); !wrong.empty()) return wrong;
    for (int r = 0; r < case_.m; ++r) {
      for (int c = 0; c < case_.n; ++c) {
        if (std::string wrong = CheckElement(r, c); !wrong.empty()) return wrong;
      }
    }
    return {};
  }

 private:
  // A workspace of exactly `bytes`, followed by a guard.
  class Buffer {
   public:
    explicit Buffer(std::size_t bytes)
        : bytes_(bytes), memory_((bytes + 511) / 256 * 256 + 256, std::byte{0x5a}) {}
    void* data() {
      void* pointer = memory_.data();
      std::size_t space = memory_.size();
      return std::align(256, bytes_, pointer, space);
    }
    bool GuardIntact() {
      const auto* end = static_cast<std::byte*>(data()) + bytes_;
      return std::all_of(end, static_cast<const std::byte*>(memory_.data() + memory_.size()),
                         [](std::byte b) { return b == std::byte{0x5a}; });
    }

   private:
    std::size_t bytes_;
    std::vector<std::byte> memory_;
  };

  double Value(int range) {
    if (data_ == Data::kIntegers) {
      return std::uniform_int_distribution<int>(-range, range)(random_);
    }
    return std::normal_distribution<double>()(random_);
  }
  double Scale() {
    if (data_ == Data::kIntegers) {
      return std::ldexp(1.0, std::uniform_int_distribution<int>(-2, 2)(random_));
    }
    return std::uniform_real_distribution<double>(0.001, 0.1)(random_);
  }

  struct Element {
    double value, magnitude;
  };

  std::size_t Flat(int row, int col) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(case_.n) +
           static_cast<std::size_t>(col);
  }

  Element WithEpilogue(int row, int col, double sum, double magnitude) const {
    Element element{case_.alpha * sum, std::abs(case_.alpha) * magnitude};
    const auto add = [&](double term) {
      element.value += term;
      element.magnitude += std::abs(term);
    };
    if (case_.beta != 0) add(case_.beta * c_values_.at(row, col));
    if (case_.bias != kNull) add(bias_.at(0, case_.bias_axis == Bias::Axis::kN ? col : row));
    return element;
  }

  std::string CheckElement(int row, int col) const {
    const auto [expected, magnitude] = expected_[Flat(row, col)];
    const double got = d_.at(row, col);
    const double rounded = RoundTo(case_.d, expected);
    if (data_ == Data::kIntegers ? got == rounded
                                 : std::abs(got - expected) <= Bound(expected, magnitude)) {
      return {};
    }
    return "D[" + std::to_string(row) + ", " + std::to_string(col) + "] is " + std::to_string(got) +
           ", not " + std::to_string(rounded);
  }

  // Chains of at most k FP32 additions and the roundings of scales, alpha and beta, each worth
  // 2^-24 of the magnitudes; then half a unit of the output type, and its subnormals' step.
  double Bound(double expected, double magnitude) const {
    // Accumulators of several lanes keep the error far below the bound of a single chain.
    const double chain = std::sqrt(static_cast<double>(case_.k)) + 6;
    const double fp32 = chain * 0x1p-24 * magnitude;
    const double output = std::ldexp(std::abs(expected) + fp32, -PrecisionOf(case_.d));
    return fp32 + output + (case_.d == kFloat16 ? 0x1p-25 : 0x1p-140);
  }

  Case case_;
  Data data_;
  int variant_ = 0;
  std::mt19937 random_;
  Matrix a_, b_, d_, u_, v_, c_values_, bias_;
  std::vector<Element> expected_;
};

}  // namespace culet::simd_test
