// Warpgroup products. A warp's lanes hold 16 rows of the sums.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "async.h"
#include "async_state.h"
#include "base/float_types.h"
#include "running_threads.h"

namespace culet::host_cuda {
namespace {

constexpr int kMostColumns = 256, kMostDepth = 32, kRows = 16;

int BytesOf(Operands type) { return type == Operands::kE4m3 ? 1 : 2; }

float ValueOf(Operands type, const char* at) {
  if (type == Operands::kE4m3) return Float8E4m3ToFloat(static_cast<std::uint8_t>(*at));
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return type == Operands::kBf16 ? Bfloat16ToFloat(bits) : Float16ToFloat(bits);
}

// A descriptor of a matrix in shared memory with a swizzle of 128 bytes. PTX ISA 9.7.15.5.1.
struct Matrix {
  const char* shared;
  std::int64_t start, leading, stride;

  Matrix(const char* memory, std::uint64_t descriptor)
      : shared(memory),
        start(Field(descriptor, 0)),
        leading(Field(descriptor, 16)),
        stride(Field(descriptor, 32)) {
    constexpr std::uint64_t kSwizzle128 = 1;
    if (descriptor >> 62 != kSwizzle128 || (descriptor >> 49 & 7) != 0) {
      Fail("the emulation knows descriptors of a swizzle of 128 bytes, with tiles on 1024");
    }
  }
  static std::int64_t Field(std::uint64_t descriptor, int bit) {
    return static_cast<std::int64_t>((descriptor >> bit & 0x3FFF) << 4);
  }
  const char* At(std::int64_t offset) const {
    if (offset >= static_cast<std::int64_t>(SharedBytes())) {
      Fail("a product reads beyond shared memory");
      return shared;
    }
    return shared + (offset ^ ((offset >> 7 & 7) << 4));
  }
  /// Byte `k` of row `row`, where K is contiguous.
  const char* KMajor(int row, int k) const {
    return At(start + row / 8 * stride + row % 8 * 128 + k);
  }
  /// Row `row` at depth `k`, of 2 bytes, where rows are contiguous: 64 of them, `leading` bytes
  /// from one 64 to the next, eight of K `stride` bytes apart.
  const char* RowMajor(int row, int k) const {
    return At(start + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2);
  }
};

struct LaneProducts {
  AsyncThread* thread;
  const char* shared;
  int warp;  ///< of its warpgroup
  int pending;
};

Accumulator& Find(AsyncThread& thread, const float* d) {
  return *std::find_if(thread.accumulators.begin(), thread.accumulators.end(),
                       [d](const Accumulator& a) { return a.d == d; });
}

// Only what must be the same in all lanes.
bool IsSame(const Product& x, const Product& y) {
  return x.type == y.type && x.columns == y.columns && x.adds == y.adds &&
         x.registers == y.registers && (x.registers || x.a == y.a) && x.b == y.b;
}

// Product `index` of the oldest group of all lanes.
void MultiplyOfWarp(const LaneProducts* (&lanes)[32], std::size_t index) {
  const Product& first = lanes[0]->thread->groups.front()[index];
  const int bytes = BytesOf(first.type), depth = 32 / bytes;
  static thread_local float a[kRows][kMostDepth], b[kMostColumns][kMostDepth];
  const Matrix of_b(lanes[0]->shared, first.b);
  if (first.registers) {
    for (int lane = 0; lane < 32; ++lane) {
      const auto& fragment = lanes[lane]->thread->groups.front()[index].fragment;
      for (int i = 0; i < 8; ++i) {
        char element[2];
        std::memcpy(element, reinterpret_cast<const char*>(fragment) + 2 * i, sizeof element);
        a[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] =
            ValueOf(first.type, element);
      }
    }
  } else {
    const Matrix of_a(lanes[0]->shared, first.a);
    for (int row = 0; row < kRows; ++row)
      for (int k = 0; k < depth; ++k)
        a[row][k] = ValueOf(first.type, of_a.KMajor(lanes[0]->warp * kRows + row, k * bytes));
  }
  for (int column = 0; column < first.columns; ++column)
    for (int k = 0; k < depth; ++k)
      b[column][k] = ValueOf(
          first.type, first.registers ? of_b.RowMajor(column, k) : of_b.KMajor(column, k * bytes));
  for (int lane = 0; lane < 32; ++lane) {
    AsyncThread& thread = *lanes[lane]->thread;
    float* const d = Find(thread, thread.groups.front()[index].d).values.data();
    for (int i = 0; i < first.columns / 2; ++i) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      double sum = first.adds ? d[i] : 0.0;
      for (int k = 0; k < depth; ++k) sum += double{a[row][k]} * b[column][k];
      d[i] = static_cast<float>(sum);
    }
  }
}

// Makes the groups of a warp but the last `pending` of them.
void MakeProducts(const LaneProducts* (&lanes)[32]) {
  const AsyncThread& first = *lanes[0]->thread;
  while (first.groups.size() > static_cast<std::size_t>(lanes[0]->pending)) {
    for (const LaneProducts* lane : lanes) {
      const auto& groups = lane->thread->groups;
      if (lane->pending != lanes[0]->pending || groups.size() != first.groups.size() ||
          !std::equal(groups.front().begin(), groups.front().end(), first.groups.front().begin(),
                      first.groups.front().end(), IsSame)) {
        return Fail("the lanes of a warp multiply different operands");
      }
    }
    for (std::size_t i = 0; i < first.groups.front().size(); ++i) MultiplyOfWarp(lanes, i);
    for (const LaneProducts* lane : lanes) {
      AsyncThread& thread = *lane->thread;
      for (const Product& product : thread.groups.front()) {
        Accumulator& sums = Find(thread, product.d);
        if (--sums.products > 0) continue;
        std::copy(sums.values.begin(), sums.values.end(), sums.d);
        std::swap(sums, thread.accumulators.back());
        thread.accumulators.pop_back();
      }
      thread.groups.erase(thread.groups.begin());
    }
  }
}

// A group may be made at once.
void CommitOfWarp(void* const (&lanes)[32]) {
  const LaneProducts* of[32];
  std::transform(lanes, lanes + 32, of,
                 [](void* lane) { return static_cast<const LaneProducts*>(lane); });
  if (Coin()) MakeProducts(of);
}
void AwaitOfWarp(void* const (&lanes)[32]) {
  const LaneProducts* of[32];
  std::transform(lanes, lanes + 32, of,
                 [](void* lane) { return static_cast<const LaneProducts*>(lane); });
  MakeProducts(of);
}

LaneProducts RunningLane(int pending) {
  const std::size_t thread = RunningThread() % ThreadsOfBlock();
  return {&RunningAsync(), DynamicShared(), static_cast<int>(thread / 32 % 4), pending};
}

void Issue(const Product& product) {
  AsyncThread& thread = RunningAsync();
  if (!thread.fenced) Fail("a product without wgmma.fence after registers were used");
  thread.open.push_back(product);
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(product.columns), product.a, product.b})
    thread.issued = (thread.issued ^ part) * 0x9E3779B97F4A7C15u + 1;
  for (Accumulator& sums : thread.accumulators) {
    if (sums.d != product.d) continue;
    ++sums.products;
    return;
  }
  const auto count = static_cast<std::size_t>(product.columns / 2);
  Accumulator sums{product.d, 1, std::vector<float>(count)};
  if (product.adds) std::copy_n(product.d, count, sums.values.begin());
  std::fill_n(product.d, count, std::numeric_limits<float>::quiet_NaN());
  thread.accumulators.push_back(std::move(sums));
}

}  // namespace

void FenceProducts() { RunningAsync().fenced = true; }

void Multiply(Operands type, int columns, bool adds, float* d, std::uint64_t a, std::uint64_t b) {
  Issue({type, columns, adds, false, d, a, b, {}});
}

void MultiplyRegisters(Operands type, int columns, bool adds, float* d, const std::uint32_t (&a)[4],
                       std::uint64_t b) {
  Issue({type, columns, adds, true, d, 0, b, {a[0], a[1], a[2], a[3]}});
}

void CommitProducts() {
  AsyncThread& thread = RunningAsync();
  thread.groups.push_back(std::exchange(thread.open, {}));
  LaneProducts lane = RunningLane(0);
  WorkOfWarp(&lane, &CommitOfWarp);
}

void AwaitProducts(int pending) {
  LaneProducts lane = RunningLane(pending);
  WorkOfWarp(&lane, &AwaitOfWarp);
  RunningAsync().fenced = false;
}

}  // namespace culet::host_cuda
