// The exchange between GPUs with its kernels on the CPU: threads are ranks, whose areas lie in one
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "argmax_rows.h"
#include "base/float_types.h"
#include "host_cuda/host_cuda.h"
#include "kernels/cuda_ops/exchange.h"

namespace culet::cuda_ops {
namespace {

constexpr float kPoison = 12345.0f;
constexpr int kGuard = 64;  // elements on both sides

constexpr std::int64_t kGroups = 4;

// Ranks with areas of `slots` packets and kGroups groups, at `epoch`.
class Team {
 public:
  Team(int ranks, std::int64_t slots, std::uint32_t epoch = 0, double limit_seconds = 60)
      : slots_(slots), controls_(Count(ranks)), statuses_(Count(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      memory_.emplace_back(ExchangeAreaBytes(ranks, slots, kGroups) / sizeof(uint4) + 2,
                           kGuardPacket);
      std::fill(memory_.back().begin() + 1, memory_.back().end() - 1, uint4{});
      areas_.push_back(memory_.back().data() + 1);
      controls_[Count(r)].epoch = epoch;
    }
    limit_ns_ = static_cast<std::uint64_t>(limit_seconds * 1e9);
  }
  int ranks() const { return static_cast<int>(areas_.size()); }
  ExchangePeers Of(int rank) {
    ExchangePeers peers;
    peers.areas = areas_.data();
    peers.control = &controls_[Count(rank)];
    peers.status = &statuses_[Count(rank)];
    peers.rank = rank;
    peers.ranks = ranks();
    peers.slots = slots_;
    peers.groups = kGroups;
    peers.limit_ns = limit_ns_;
    return peers;
  }
  ExchangeStatus& status(int rank) { return statuses_[Count(rank)]; }
  std::uint32_t epoch(int rank) const { return controls_[Count(rank)].epoch; }
  // All ranks at once.
  void Run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks(); ++r) threads.emplace_back([&, r] { body(r); });
    for (std::thread& thread : threads) thread.join();
  }
  void CheckGuards() const {
    for (const std::vector<uint4>& area : memory_) {
      for (const uint4& guard : {area.front(), area.back()}) {
        EXPECT_EQ(std::memcmp(&guard, &kGuardPacket, sizeof guard), 0);
      }
    }
  }
  // What a packet of another exchange would be: the same data and the epoch of long ago.
  void FillSlots(std::uint32_t epoch) {
    for (std::vector<uint4>& area : memory_) {
      std::fill(area.begin() + 1, area.end() - 1, uint4{0x42C80000u, 0x42C80000u, 7, epoch});
    }
  }
  // The same of the words behind the packets.
  void FillWords(std::uint32_t epoch) {
    const std::size_t first = 1 + ExchangeAreaBytes(ranks(), slots_) / sizeof(uint4);
    const auto count = static_cast<std::ptrdiff_t>(kGroups * ranks());
    for (std::vector<uint4>& area : memory_) {
      const auto at = area.begin() + static_cast<std::ptrdiff_t>(first);
      std::fill(at, at + count, uint4{epoch, epoch, epoch, epoch});
    }
  }

 private:
  static constexpr uint4 kGuardPacket{0xDEADu, 0xBEEFu, 0xDEADu, 0xBEEFu};
  static std::size_t Count(int n) { return static_cast<std::size_t>(n); }
  std::int64_t slots_;
  std::uint64_t limit_ns_;
  std::vector<std::vector<uint4>> memory_;
  std::vector<void*> areas_;
  std::vector<ExchangeControl> controls_;
  std::vector<ExchangeStatus> statuses_;
};

// Values between guards, aligned to 16 bytes.
template <class T>
class Guarded {
 public:
  Guarded(std::size_t count, T poison) : poison_(poison), all_(count + 2 * kGuard, poison) {}
  T* data() { return all_.data() + kGuard; }
  T operator[](std::size_t i) const { return all_[kGuard + i]; }
  std::size_t size() const { return all_.size() - 2 * kGuard; }
  void CheckGuards() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(std::memcmp(&all_[i], &poison_, sizeof(T)), 0);
      EXPECT_EQ(std::memcmp(&all_[all_.size() - 1 - i], &poison_, sizeof(T)), 0);
    }
  }

 private:
  T poison_;
  std::vector<T> all_;
};

using Floats = Guarded<float>;

std::vector<float> Random(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

float RoundedToWire(float value, DataType wire) {
  return wire == DataType::kFloat32 ? value : Bfloat16ToFloat(FloatToBfloat16(value));
}

struct Sums {
  std::vector<Floats> of;  // of each rank
};

// One all-reduce of values(rank, i); checks that all ranks have the same bits.
Sums Reduce(Team& team, std::int64_t count, DataType wire, bool in_place,
            const std::function<float(int, std::size_t)>& value, bool two_shots = false) {
  Sums sums;
  for (int r = 0; r < team.ranks(); ++r)
    sums.of.emplace_back(static_cast<std::size_t>(count), kPoison);
  team.Run([&](int r) {
    Floats x(static_cast<std::size_t>(count), kPoison);
    Floats& sum = sums.of[static_cast<std::size_t>(r)];
    float* const from = in_place ? sum.data() : x.data();
    for (std::size_t i = 0; i < x.size(); ++i) from[i] = value(r, i);
    AllReduceArgs args;
    args.peers = team.Of(r);
    args.x = from;
    args.sum = sum.data();
    args.count = count;
    args.wire = wire;
    args.units = 2;
    ASSERT_TRUE(CanAllReduce(args));
    if (two_shots) {
      ASSERT_LE(TwoShotGroups(count, args.peers.ranks), args.peers.groups);
      EXPECT_EQ(AllReduceTwoShot(args, {nullptr, true}), cudaSuccess) << host_cuda::Fault();
    } else {
      ASSERT_LE(AllReduceSlots(count, wire), args.peers.slots);
      EXPECT_EQ(AllReduce(args, {nullptr, true}), cudaSuccess) << host_cuda::Fault();
    }
    x.CheckGuards();
    sum.CheckGuards();
    if (in_place) return;
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], value(r, i));
  });
  for (int r = 1; r < team.ranks(); ++r) {
    EXPECT_EQ(std::memcmp(sums.of[0].data(), sums.of[static_cast<std::size_t>(r)].data(),
                          static_cast<std::size_t>(count) * sizeof(float)),
              0)
        << "rank " << r;
  }
  team.CheckGuards();
  return sums;
}

class AllReduceOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceOf, testing::Values(2, 3, 4));

TEST_P(AllReduceOf, IntegersExactlyInManyExchangesOfAllSizes) {
  Team team(GetParam(), AllReduceSlots(8192, DataType::kFloat32));
  std::mt19937 random(7);
  constexpr std::int64_t kCounts[] = {4, 64, 384 * 4, 384 * 4 + 4, 4096, 8192};
  for (int turn = 0; turn < 24; ++turn) {
    const std::int64_t count = kCounts[random() % std::size(kCounts)];
    const DataType wire = random() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16;
    const auto value = [&](int rank, std::size_t i) {
      return static_cast<float>((static_cast<int>(i) * 7 + rank * 3 + turn) % 61 - 30);
    };
    const Sums sums = Reduce(team, count, wire, turn % 3 == 0, value, random() % 2 == 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      float want = 0;
      for (int r = 0; r < GetParam(); ++r) want += value(r, i);
      ASSERT_EQ(sums.of[0][i], want) << "turn " << turn << ", element " << i << " of " << count;
    }
    for (int r = 0; r < GetParam(); ++r) {
      ASSERT_EQ(team.epoch(r), static_cast<std::uint32_t>(turn) + 1);
    }
  }
}

TEST_P(AllReduceOf, RandomValuesInTheOrderOfTheRanks) {
  constexpr std::int64_t kCount = 5000;
  for (const DataType wire : {DataType::kFloat32, DataType::kBfloat16}) {
    Team team(GetParam(), AllReduceSlots(kCount, wire));
    std::vector<std::vector<float>> values;
    for (int r = 0; r < GetParam(); ++r) {
      values.push_back(Random(kCount, static_cast<unsigned>(r) + 1));
    }
    const Sums sums = Reduce(team, kCount, wire, false, [&](int rank, std::size_t i) {
      return values[static_cast<std::size_t>(rank)][i];
    });
    for (std::size_t i = 0; i < kCount; ++i) {
      float in_order = RoundedToWire(values[0][i], wire);
      double exact = values[0][i], magnitude = std::abs(values[0][i]);
      for (std::size_t r = 1; r < values.size(); ++r) {
        in_order += RoundedToWire(values[r][i], wire);
        exact += values[r][i];
        magnitude += std::abs(values[r][i]);
      }
      ASSERT_EQ(sums.of[0][i], in_order) << i;
      ASSERT_NEAR(sums.of[0][i], exact,
                  magnitude * (wire == DataType::kFloat32 ? 0x1p-22 : 0x1p-8));
    }
  }
}

// The bits of one shot in float32; in bfloat16 the rank that sums has its own as they are, and
// rounds the sum.
TEST_P(AllReduceOf, TwoShotsInTheOrderOfTheRanks) {
  const int ranks = GetParam();
  const std::int64_t count = kTwoShotTile * ranks * 3 + kTwoShotTile + 132;
  std::vector<std::vector<float>> values;
  for (int r = 0; r < ranks; ++r) {
    values.push_back(Random(static_cast<std::size_t>(count), static_cast<unsigned>(r) + 1));
  }
  for (const DataType wire : {DataType::kFloat32, DataType::kBfloat16}) {
    Team team(ranks, 256);
    const Sums sums = Reduce(
        team, count, wire, wire == DataType::kFloat32,
        [&](int rank, std::size_t i) { return values[static_cast<std::size_t>(rank)][i]; }, true);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::size_t owner = i / kTwoShotTile % values.size();
      float in_order = 0;
      double exact = 0, magnitude = 0;
      for (std::size_t r = 0; r < values.size(); ++r) {
        const float part = r == owner ? values[r][i] : RoundedToWire(values[r][i], wire);
        in_order = r == 0 ? part : in_order + part;
        exact += values[r][i];
        magnitude += std::abs(values[r][i]);
      }
      ASSERT_EQ(sums.of[0][i], RoundedToWire(in_order, wire)) << i;
      ASSERT_NEAR(sums.of[0][i], exact,
                  wire == DataType::kFloat32 ? magnitude * 0x1p-22
                                             : 1.01 * (magnitude + std::abs(exact)) * 0x1p-8);
    }
  }
}

// Over the end of the numbers of exchanges, and with packets as old as there are numbers.
TEST_P(AllReduceOf, EpochsThatBeginAnew) {
  constexpr std::int64_t kCount = 1024;
  const std::int64_t slots = AllReduceSlots(2 * kCount, DataType::kFloat32);
  Team team(GetParam(), slots, 0xFFFFFFFFu - 3);
  for (int turn = 0; turn < 9; ++turn) {
    const Sums sums = Reduce(
        team, kCount, DataType::kFloat32, false,
        [&](int r, std::size_t i) { return static_cast<float>(r + turn + i); }, turn % 4 < 2);
    const auto n = static_cast<float>(GetParam());
    const float want = n * (n - 1) / 2 + n * static_cast<float>(turn);
    ASSERT_EQ(sums.of[0][0], want) << turn;
  }
  EXPECT_EQ(team.epoch(0), 7u);
  // Before epochs 2^20 and 2^20 + 1 old packets with the numbers of the next ones lie in slots that
  // no exchange used since.
  constexpr std::uint32_t kSweep = 1u << 20;
  Team old(GetParam(), slots, kSweep - 1);
  old.FillSlots(kSweep + 2);
  for (int turn = 0; turn < 4; ++turn) {
    const std::int64_t count = turn < 2 ? kCount : 2 * kCount;
    const Sums sums =
        Reduce(old, count, DataType::kFloat32, false, [](int, std::size_t) { return 1.0f; });
    ASSERT_EQ(sums.of[0][static_cast<std::size_t>(count) - 1], static_cast<float>(GetParam()));
  }
  Team shots(GetParam(), slots, kSweep - 1);
  shots.FillSlots(kSweep + 2);
  shots.FillWords(kSweep + 2);
  for (int turn = 0; turn < 4; ++turn) {
    const std::int64_t count = turn < 2 ? kCount : 4 * kTwoShotTile;
    const Sums sums = Reduce(
        shots, count, DataType::kFloat32, false, [](int, std::size_t) { return 1.0f; }, turn >= 2);
    ASSERT_EQ(sums.of[0][static_cast<std::size_t>(count) - 1], static_cast<float>(GetParam()));
  }
}

TEST_P(AllReduceOf, ARankThatDoesNotComeIsNamed) {
  constexpr std::int64_t kCount = 4096;
  const int missing = GetParam() - 1;
  for (const auto& reduce : {&AllReduce, &AllReduceTwoShot}) {
    Team team(GetParam(), AllReduceSlots(kCount, DataType::kFloat32), 0, 0.2);
    team.Run([&](int r) {
      if (r == missing) return;
      std::vector<float> x(kCount, 1.0f);
      AllReduceArgs args;
      args.peers = team.Of(r);
      args.x = args.sum = x.data();
      args.count = kCount;
      args.units = 2;
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_EQ(reduce(args, {nullptr, false}), cudaSuccess);
      // The next ones do not wait.
      for (int i = 0; i < 100; ++i) ASSERT_EQ(reduce(args, {nullptr, false}), cudaSuccess);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
      for (const float value : x) ASSERT_TRUE(std::isnan(value));
    });
    // Who comes last finds what the others sent; before, it may itself be late for them.
    bool named = false;
    for (int r = 0; r < missing; ++r) {
      EXPECT_NE(team.status(r).late, 0u);
      EXPECT_NE(team.status(r).late, static_cast<std::uint32_t>(r) + 1);
      EXPECT_EQ(team.status(r).epoch, 1u);
      named |= team.status(r).late == static_cast<std::uint32_t>(missing) + 1;
    }
    EXPECT_TRUE(named);
  }
}

TEST_P(AllReduceOf, AnAbortEndsWaits) {
  constexpr std::int64_t kCount = 1024;
  Team team(GetParam(), AllReduceSlots(kCount, DataType::kFloat32), 0, 600);
  std::vector<float> x(kCount, 1.0f);
  AllReduceArgs args;
  args.peers = team.Of(0);
  args.x = args.sum = x.data();
  args.count = kCount;
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::atomic_ref(team.status(0).abort).store(1);
  });
  ASSERT_EQ(AllReduce(args, {nullptr, false}), cudaSuccess);
  host.join();
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_EQ(team.status(0).late, 0u);
}

// Unequal parts, among them one without columns.
TEST(AllArgMaxOf, TheLargestOfAllRanksIsTheFirstOfEquals) {
  constexpr std::int64_t kRows = 300;  // more than a block has threads
  const ArgMaxRows rows = RowsForArgMax(kRows, 64);
  Team team(3, kRows, 0xFFFFFFFDu);  // epochs begin anew in the midst
  std::vector<std::uint64_t> most(kRows);
  std::mutex lock;
  team.Run([&](int r) {
    const RankParts parts{r, {0, 7, 8, 64}};
    std::vector<std::int32_t> local;
    const std::vector<float> part = rows.PartOf(parts, local);
    AllArgMaxArgs args;
    args.peers = team.Of(r);
    args.x = part.data();
    args.local = local.data();
    args.cols = parts.size_of(r);
    args.first = parts.first();
    for (const std::int64_t count : {kRows, std::int64_t{1}, std::int64_t{129}, kRows, kRows}) {
      Guarded<std::int32_t> all(static_cast<std::size_t>(count), -7);
      args.all = all.data();
      args.rows = count;
      EXPECT_EQ(AllArgMax(args, {nullptr, true}), cudaSuccess) << host_cuda::Fault();
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], rows.wanted[i]) << i;
      all.CheckGuards();
    }
    // As something else exchanges the keys.
    std::vector<std::uint64_t> keys(kRows);
    EXPECT_EQ(KeysOfArgMax(args, keys.data(), {nullptr, false}), cudaSuccess);
    const std::scoped_lock own(lock);
    for (std::size_t i = 0; i < keys.size(); ++i) most[i] = std::max(most[i], keys[i]);
  });
  std::vector<std::int32_t> all(kRows);
  EXPECT_EQ(ArgMaxOfKeys(most.data(), all.data(), kRows, {nullptr, false}), cudaSuccess);
  EXPECT_EQ(all, rows.wanted);
  team.CheckGuards();
}

TEST(AllArgMaxOf, ARankThatDoesNotComeLeavesNone) {
  Team team(2, 8, 0, 0.2);
  const float x[4] = {1, 3, 2, 0};
  const std::int32_t local = 1;
  std::int32_t all = 5;
  AllArgMaxArgs args;
  args.peers = team.Of(0);
  args.x = x;
  args.local = &local;
  args.all = &all;
  args.rows = 1;
  args.cols = 4;
  EXPECT_EQ(AllArgMax(args, {nullptr, false}), cudaSuccess) << host_cuda::Fault();
  EXPECT_EQ(all, -1);
  EXPECT_EQ(team.status(0).late, 2u);
}

TEST(AllGatherOf, PartsOfAllSizesLieSideBySide) {
  struct Case {
    std::int64_t rows;
    std::vector<std::int64_t> bounds;
  };
  const Case cases[] = {
      {1, {0, 1024, 2048}}, {3, {0, 384, 520}}, {2, {0, 128, 128, 4000}}, {5, {0, 4, 8, 16, 24}}};
  for (const Case& c : cases) {
    const int ranks = static_cast<int>(c.bounds.size()) - 1;
    SCOPED_TRACE(testing::Message() << c.rows << " rows of " << ranks << " ranks");
    Team team(ranks, 8192);
    const std::int64_t total = c.bounds.back();
    const auto value = [&](std::int64_t row, std::int64_t col, int turn) {
      return static_cast<float>(row * 100'000 + col + turn);
    };
    for (int turn = 0; turn < 4; ++turn) {
      team.Run([&](int r) {
        const std::int64_t first = c.bounds[static_cast<std::size_t>(r)];
        const std::int64_t width = c.bounds[static_cast<std::size_t>(r) + 1] - first;
        Floats x(static_cast<std::size_t>(c.rows * width), kPoison);
        Floats all(static_cast<std::size_t>(c.rows * total), kPoison);
        for (std::int64_t i = 0; i < c.rows * width; ++i) {
          x.data()[i] = value(i / width, first + i % width, turn);
        }
        AllGatherArgs args;
        args.peers = team.Of(r);
        args.x = x.data();
        args.all = all.data();
        args.rows = c.rows;
        std::copy(c.bounds.begin(), c.bounds.end(), args.bounds);
        ASSERT_GT(AllGatherSlots(args), 0);
        ASSERT_LE(AllGatherSlots(args), args.peers.slots);
        ASSERT_EQ(AllGather(args, {nullptr, true}), cudaSuccess) << host_cuda::Fault();
        for (std::int64_t i = 0; i < c.rows * total; ++i) {
          ASSERT_EQ(all[static_cast<std::size_t>(i)], value(i / total, i % total, turn)) << i;
        }
        x.CheckGuards(), all.CheckGuards();
      });
    }
    team.CheckGuards();
  }
  AllGatherArgs odd;
  odd.peers.ranks = 2;
  odd.rows = 1;
  odd.bounds[1] = 6, odd.bounds[2] = 12;
  EXPECT_EQ(AllGatherSlots(odd), 0);
  odd.peers.ranks = AllGatherArgs::kMostRanks + 1;
  EXPECT_EQ(AllGatherSlots(odd), 0);
}

struct NormCase {
  std::int64_t rows;
  int width;
  bool residual, codes;
  DataType out, gamma;
};

class AllReduceNormOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AllReduceNormOf, testing::Values(2, 3));

TEST_P(AllReduceNormOf, IsTheSumItsNormAndCodes) {
  constexpr int kUnits = 20;
  const NormCase cases[] = {
      {1, 4096, true, false, DataType::kBfloat16, DataType::kBfloat16},
      {3, 1032, true, true, DataType::kFloat32, DataType::kFloat32},
      {5, 64, false, false, DataType::kFloat32, DataType::kBfloat16},
      {20, 256, true, false, DataType::kBfloat16, DataType::kFloat32},
  };
  for (const NormCase& c : cases) {
    for (const DataType wire : {DataType::kFloat32, DataType::kBfloat16}) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.width << " " << ToString(wire));
      const std::int64_t slots = AllReduceNormSlots(c.rows, c.width, wire, kUnits);
      ASSERT_GT(slots, 0);
      Team team(GetParam(), slots);
      const auto count = static_cast<std::size_t>(c.rows * c.width);
      const auto width = static_cast<std::size_t>(c.width), groups = (width + 127) / 128;
      const std::vector<float> residual = Random(count, 99), gammas = Random(width, 98);
      std::vector<std::uint16_t> gammas_bf16;
      for (const float gamma : gammas) gammas_bf16.push_back(FloatToBfloat16(gamma));
      std::vector<std::vector<float>> values;
      for (int r = 0; r < GetParam(); ++r) {
        values.push_back(Random(count, static_cast<unsigned>(r) + 1));
      }
      struct Made {
        Floats sum, out;
        Guarded<std::uint16_t> out_bf16;
        Guarded<std::uint8_t> codes;
        Floats scales;
      };
      std::vector<Made> made;
      for (int r = 0; r < GetParam(); ++r) {
        made.push_back({{count, kPoison},
                        {count, kPoison},
                        {count, 0x7FC1},
                        {count, 0x55},
                        {static_cast<std::size_t>(c.rows) * groups, kPoison}});
      }
      constexpr float kEpsilon = 1e-5f;
      for (int turn = 0; turn < 3; ++turn) {
        team.Run([&](int r) {
          Made& of = made[static_cast<std::size_t>(r)];
          std::vector<float> y = residual;
          AllReduceNormArgs args;
          args.peers = team.Of(r);
          args.wire = wire;
          args.units = kUnits;
          args.norm.x = values[static_cast<std::size_t>(r)].data();
          args.norm.x_type = DataType::kFloat32;
          if (c.residual) args.norm.y = y.data();
          // The residual sum may lie over the residual.
          args.norm.sum = turn == 1 && c.residual ? y.data() : of.sum.data();
          args.norm.gamma = c.gamma == DataType::kFloat32 ? static_cast<const void*>(gammas.data())
                                                          : gammas_bf16.data();
          args.norm.gamma_type = c.gamma;
          args.norm.epsilon = kEpsilon;
          args.norm.out_type = c.out;
          args.norm.out =
              c.out == DataType::kFloat32 ? static_cast<void*>(of.out.data()) : of.out_bf16.data();
          if (c.codes) args.norm.to = {of.codes.data(), of.scales.data()};
          args.norm.rows = c.rows;
          args.norm.width = c.width;
          ASSERT_EQ(AllReduceNorm(args, {nullptr, true}), cudaSuccess) << host_cuda::Fault();
          if (args.norm.sum == y.data()) std::copy(y.begin(), y.end(), of.sum.data());
          of.sum.CheckGuards(), of.out.CheckGuards(), of.out_bf16.CheckGuards();
          of.codes.CheckGuards(), of.scales.CheckGuards();
        });
        team.CheckGuards();
      }
      for (std::int64_t row = 0; row < c.rows; ++row) {
        const std::size_t start = static_cast<std::size_t>(row) * width;
        double squares = 0;
        for (std::size_t i = start; i < start + width; ++i) {
          float sum = RoundedToWire(values[0][i], wire);
          for (std::size_t r = 1; r < values.size(); ++r) {
            sum += RoundedToWire(values[r][i], wire);
          }
          if (c.residual) sum = residual[i] + sum;
          ASSERT_EQ(made[0].sum[i], sum) << i;
          squares += double{sum} * sum;
        }
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
        for (std::size_t i = start; i < start + width; ++i) {
          const std::size_t col = i - start;
          const float gamma =
              c.gamma == DataType::kFloat32 ? gammas[col] : Bfloat16ToFloat(gammas_bf16[col]);
          const double want = made[0].sum[i] * scale * gamma;
          const float got =
              c.out == DataType::kFloat32 ? made[0].out[i] : Bfloat16ToFloat(made[0].out_bf16[i]);
          ASSERT_NEAR(got, want,
                      std::abs(want) * (c.out == DataType::kFloat32 ? 2e-6 : 0x1p-8) + 1e-12);
        }
        if (!c.codes) continue;
        std::vector<std::uint8_t> codes(width);
        std::vector<float> scales(groups);
        ASSERT_EQ(QuantizeRows(made[0].out.data() + start, DataType::kFloat32, 1, c.width,
                               codes.data(), scales.data(), {nullptr, false}, {}),
                  cudaSuccess);
        EXPECT_EQ(std::memcmp(codes.data(), made[0].codes.data() + start, width), 0);
        EXPECT_EQ(std::memcmp(scales.data(),
                              made[0].scales.data() + static_cast<std::size_t>(row) * groups,
                              groups * sizeof(float)),
                  0);
      }
      for (std::size_t r = 1; r < made.size(); ++r) {
        const auto equal = [&](auto& a, auto& b) {
          return std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0;
        };
        EXPECT_TRUE(equal(made[0].sum, made[r].sum));
        EXPECT_TRUE(equal(made[0].out, made[r].out));
        EXPECT_TRUE(equal(made[0].out_bf16, made[r].out_bf16));
        EXPECT_TRUE(equal(made[0].codes, made[r].codes));
        EXPECT_TRUE(equal(made[0].scales, made[r].scales));
      }
    }
  }
}

TEST(AllReduceNormSlotsOf, WhatItDoesNotTake) {
  constexpr int kUnits = 132;
  EXPECT_GT(AllReduceNormSlots(32, 8192, DataType::kFloat32, kUnits), 0);
  EXPECT_EQ(AllReduceNormSlots(65, 4096, DataType::kFloat32, kUnits), 0);
  EXPECT_EQ(AllReduceNormSlots(1, 4100, DataType::kFloat32, kUnits), 0);
  EXPECT_EQ(AllReduceNormSlots(0, 4096, DataType::kFloat32, kUnits), 0);
}

}  // namespace
}  // namespace culet::cuda_ops
