// Models on several ranks whose kernels write into each other's memory, on the CPU
// (tests/host_cuda).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "argmax_rows.h"
#include "asan.h"
#include "cuda/cases.h"
#include "culet/decoder.h"
#include "culet/ranks.h"
#include "decoder_fixture.h"
#include "graph/cuda/peer_exchange.h"
#include "host_cuda/test_dispatch.h"
#include "kernels/cuda_ops/exchange.h"
#include "rank_threads.h"

namespace culet {
namespace {

constexpr int kUnits = 16;  // multiprocessors of each GPU

// Areas of a team of threads, with room for `choice`.
class Areas {
 public:
  explicit Areas(int ranks, std::optional<ExchangeChoice> choice = std::nullopt)
      : memory_(static_cast<std::size_t>(ranks)), choice_(choice.value_or(UsualExchange(ranks))) {
    const std::size_t bytes = cuda_ops::PeerAreaBytes(ranks, choice_);
    for (auto& area : memory_) area.reset(new (std::align_val_t(256)) std::byte[bytes]());
  }
  Result<std::shared_ptr<RankExchange>> Exchange(Communicator& ranks) {
    cuda_ops::PeerSetup setup;
    for (auto& area : memory_) setup.areas.push_back(area.get());
    setup.other = MakeHostExchange(ranks);
    setup.choice = choice_;
    setup.units = kUnits;
    auto made = cuda_ops::MakePeerExchangeOver(ranks, HostMemory(), std::move(setup));
    if (!made) return made.status();
    return std::shared_ptr<RankExchange>(*std::move(made));
  }

 private:
  struct Delete {
    void operator()(std::byte* at) const { ::operator delete[](at, std::align_val_t(256)); }
  };
  std::vector<std::unique_ptr<std::byte[], Delete>> memory_;
  ExchangeChoice choice_;
};

// Counts what goes through `inner`.
class Counted final : public RankExchange {
 public:
  explicit Counted(std::shared_ptr<RankExchange> inner) : inner_(std::move(inner)) {}
  Status AllReduce(DevicePtr x, DevicePtr sum, std::size_t count, ExchangeStream stream) override {
    ++sums;
    return inner_->AllReduce(x, sum, count, stream);
  }
  bool TakesNorm(std::int64_t rows, std::int64_t width) const override {
    return inner_->TakesNorm(rows, width);
  }
  Status AllReduceNorm(const SumAndNorm& what, ExchangeStream stream) override {
    ++norms;
    codes += what.codes != 0;
    return inner_->AllReduceNorm(what, stream);
  }
  Status AllGather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                   DevicePtr workspace, ExchangeStream stream) override {
    return inner_->AllGather(x, all, rows, parts, workspace, stream);
  }
  std::size_t GatherWorkspace(std::int64_t rows, const RankParts& parts) const override {
    return inner_->GatherWorkspace(rows, parts);
  }
  Status AllArgMax(DevicePtr x, DevicePtr local, DevicePtr all, std::int64_t rows,
                   const RankParts& parts, DevicePtr workspace, ExchangeStream stream) override {
    ++keys;
    return inner_->AllArgMax(x, local, all, rows, parts, workspace, stream);
  }
  std::size_t ArgMaxWorkspace(std::int64_t rows) const override {
    return inner_->ArgMaxWorkspace(rows);
  }
  std::string name() const override { return inner_->name(); }
  Status status() override { return inner_->status(); }
  bool is_watched() const override { return inner_->is_watched(); }
  void BeginWait() override { inner_->BeginWait(); }
  Status EndWait() override { return inner_->EndWait(); }

  int sums = 0, norms = 0, codes = 0, keys = 0;

 private:
  std::shared_ptr<RankExchange> inner_;
};

struct Answer {
  std::vector<float> logits;
  std::vector<std::int32_t> tokens;
};

void AnswerOn(Communicator& ranks, const std::shared_ptr<RankExchange>& exchange,
              const std::string& folder, const Goldens& goldens, Answer& answer,
              ExpertsBy experts = ExpertsBy::kRule) {
  LoadOptions load;
  load.experts = experts;
  load.rank = ranks.rank();
  load.ranks = ranks.size();
  const auto model = DecoderModel::Load(folder, HostMemory(), load);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const bool exact = experts == ExpertsBy::kExpert;  // else a near tie may choose other experts
  TestDispatch test = MakeTestDispatch({.round_product_inputs = !exact});
  auto dispatch = MakeRankDispatch(std::move(test.dispatch), ranks, exchange);
  ASSERT_TRUE(dispatch.ok()) << dispatch.status().ToString();
  SessionOptions options;
  if (exact) options.value_type = options.cache_type = DataType::kFloat32;
  options.max_sequences = 1;
  options.block_size = 8;
  auto session = Session::Create(*model, **dispatch, options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  auto prompt = session->Prefill(sequence, goldens.input_ids, {.all_logits = true});
  ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
  answer.logits = prompt->logits;
  answer.tokens = prompt->next;
  DecodeOptions decode;
  decode.steps = 6;
  const SequenceTokens next{sequence, {prompt->next.data(), 1}};
  const auto made = session->Decode({&next, 1}, decode);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  answer.tokens.insert(answer.tokens.end(), made->front().tokens.begin(),
                       made->front().tokens.end());
}

TEST(Peers, ModelsAnswerAsThroughTheHost) {
  for (const int size : {2, 3}) {
    for (const char* const name : {"llama-gqa", "qwen3-fp8"}) {
      if (kSanitized && (size == 3) == (name == std::string("llama-gqa"))) continue;
      const std::string folder = FixtureFolder(name);
      if (folder.empty()) GTEST_SKIP() << "no fixture " << name;
      SCOPED_TRACE(testing::Message() << name << " on " << size);
      const auto goldens = ReadGoldens(folder);
      ASSERT_TRUE(goldens.has_value());
      const auto count = static_cast<std::size_t>(size);
      std::vector<Answer> host(count), peers(count);
      OnRanks(size, [&](Communicator& ranks) {
        AnswerOn(ranks, MakeHostExchange(ranks), folder, *goldens,
                 host[static_cast<std::size_t>(ranks.rank())]);
      });
      Areas areas(size);
      OnRanks(size, [&](Communicator& ranks) {
        auto exchange = areas.Exchange(ranks);
        ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
        const auto counted = std::make_shared<Counted>(*exchange);
        AnswerOn(ranks, counted, folder, *goldens, peers[static_cast<std::size_t>(ranks.rank())]);
        // Behind the embedding and every layer's two parts, in six steps and in a prompt of no more
        // rows than there are multiprocessors. The last norm has no codes.
        const int parts = 2 * ReadDecoderConfig(folder)->layers;
        const bool fits = goldens->input_ids.size() <= kUnits;
        EXPECT_EQ(counted->norms, (parts + 1) * (fits ? 7 : 6));
        EXPECT_EQ(counted->sums, fits ? 0 : parts + 1);
        EXPECT_EQ(counted->keys, 6);  // the prompt's logits are wanted whole
        EXPECT_EQ(counted->codes, name == std::string("qwen3-fp8") ? parts * (fits ? 7 : 6) : 0);
      });
      if (HasFailure()) return;
      for (const Answer& each : peers) {
        EXPECT_EQ(each.logits, peers[0].logits);
        EXPECT_EQ(each.tokens, peers[0].tokens);
      }
      ASSERT_EQ(peers[0].logits.size(), host[0].logits.size());
      // Norms add squares in another order, which moves ties of E4M3.
      const double bound = name == std::string("qwen3-fp8") ? 1e-3 : 1e-5;
      EXPECT_LE(RelativeL2(peers[0].logits.data(), host[0].logits.data(), host[0].logits.size()),
                bound);
      EXPECT_EQ(peers[0].tokens, host[0].tokens);
    }
  }
}

TEST(Peers, ExpertsMayBeWhole) {
  const std::string folder = FixtureFolder("qwen3-moe");
  if (folder.empty()) GTEST_SKIP() << "no fixture qwen3-moe";
  const auto goldens = ReadGoldens(folder);
  ASSERT_TRUE(goldens.has_value());
  constexpr int kSize = 3;
  std::vector<Answer> answers(kSize);
  Areas areas(kSize);
  OnRanks(kSize, [&](Communicator& ranks) {
    auto exchange = areas.Exchange(ranks);
    ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
    AnswerOn(ranks, *exchange, folder, *goldens, answers[static_cast<std::size_t>(ranks.rank())],
             ExpertsBy::kExpert);
  });
  if (HasFailure()) return;
  for (const Answer& each : answers) {
    EXPECT_EQ(each.logits, answers[0].logits);
    EXPECT_EQ(each.tokens, answers[0].tokens);
  }
  ASSERT_EQ(answers[0].logits.size(), goldens->logits.size());
  EXPECT_LE(RelativeL2(answers[0].logits.data(), goldens->logits.data(), answers[0].logits.size()),
            1e-4);
}

TEST(Peers, TheLargestOfAllRanksIsTheFirstOfEquals) {
  constexpr int kSize = 3, kRows = 300;  // more than a block has threads
  const ArgMaxRows rows = RowsForArgMax(kRows, 64);
  Areas areas(kSize);
  OnRanks(kSize, [&](Communicator& ranks) {
    auto exchange = areas.Exchange(ranks);
    ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
    const RankParts parts{ranks.rank(), {0, 7, 8, 64}};
    std::vector<std::int32_t> local;
    const std::vector<float> part = rows.PartOf(parts, local);
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{kRows}}) {
      std::vector<std::int32_t> all(static_cast<std::size_t>(count));
      const Status status =
          (*exchange)->AllArgMax(ToDevicePtr(part.data()), ToDevicePtr(local.data()),
                                 ToDevicePtr(all.data()), count, parts, 0, {});
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(all, std::vector(rows.wanted.begin(), rows.wanted.begin() + count));
    }
  });
}

TensorNode SumOf(std::int64_t count) {
  TensorNode node;
  node.op = TensorOp::kAllReduce;
  node.shape = {1, count};
  return node;
}

// By size: a push, two shots, and the other; each of them right, in pieces of what there is room
// for.
TEST(Peers, SumsGoTheWayOfTheirSize) {
  constexpr int kSize = 3;
  constexpr std::int64_t kPush = 2048, kTwoShots = 32 << 10;  // bytes on the wire
  for (const DataType wire : {DataType::kFloat32, DataType::kBfloat16}) {
    const auto element = static_cast<std::int64_t>(SizeOf(wire));
    const ExchangeChoice choice{wire, kPush, kTwoShots, true};
    Areas areas(kSize, choice);
    OnRanks(kSize, [&](Communicator& ranks) {
      auto exchange = areas.Exchange(ranks);
      ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
      EXPECT_EQ((*exchange)->choice(), choice);
      struct Case {
        std::int64_t bytes;
        const char* name;
      };
      for (const Case& c :
           {Case{kPush, "peers"}, Case{kPush + 16, "peers_two_shots"},
            Case{kTwoShots, "peers_two_shots"}, Case{kTwoShots + 16, "shared_memory"}}) {
        const std::int64_t count = c.bytes / element;
        EXPECT_EQ((*exchange)->NameOf(SumOf(count)), c.name) << c.bytes;
        std::vector<float> x(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = static_cast<float>(i % 31) + static_cast<float>(ranks.rank());
        }
        const DevicePtr at = ToDevicePtr(x.data());
        ASSERT_TRUE((*exchange)->AllReduce(at, at, x.size(), {}).ok());
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(x[i], 3 * static_cast<float>(i % 31) + 3) << i << " of " << c.bytes;
        }
      }
    });
  }
}

TEST(Peers, SumsAreTuned) {
  constexpr int kSize = 2;
  constexpr std::int64_t kMost = 128 << 10;
  ExchangeChoice room = UsualExchange(kSize);
  room.two_shot_bytes = kMost;
  Areas areas(kSize, room);
  std::vector<ExchangeChoice> choices(kSize);
  OnRanks(kSize, [&](Communicator& ranks) {
    auto exchange = areas.Exchange(ranks);
    ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
    const auto dispatch = MakeReferenceDispatch();
    const auto tuned = TuneExchange(ranks, *dispatch, **exchange, kMost);
    ASSERT_TRUE(tuned.ok()) << tuned.status().ToString();
    ASSERT_EQ(tuned->times.size(), 2u);
    for (const ExchangeTimes& each : tuned->times) {
      EXPECT_GT(each.push, 0);
      EXPECT_GT(each.two_shots, 0);
      EXPECT_GT(each.nccl, 0);
    }
    EXPECT_TRUE(tuned->choice.measured);
    choices[static_cast<std::size_t>(ranks.rank())] = tuned->choice;
    EXPECT_EQ((*exchange)->choice(), tuned->choice);
    // There is nothing to choose.
    const auto host = MakeHostExchange(ranks);
    const auto none = TuneExchange(ranks, *dispatch, *host, kMost);
    EXPECT_NE(none.status().message().find("in one way"), std::string::npos);
  });
  EXPECT_EQ(choices[0], choices[1]);
}

// What a session's calls say on the ranks that are left.
TEST(Peers, ARankThatStopsIsNamed) {
  constexpr int kSize = 3, kMissing = 1;
  Areas areas(kSize);
  std::atomic<int> told = 0;
  OnRanks(
      kSize,
      [&](Communicator& ranks) {
        auto exchange = areas.Exchange(ranks);
        ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
        std::vector<float> x(1024, 1.0f);
        const auto sum = [&] {
          (*exchange)->BeginWait();
          const Status launched =
              (*exchange)->AllReduce(ToDevicePtr(x.data()), ToDevicePtr(x.data()), x.size(), {});
          const Status ended = (*exchange)->EndWait();
          return launched.ok() ? ended : launched;
        };
        ASSERT_TRUE(sum().ok());
        ASSERT_EQ(x[7], 3.0f);
        if (ranks.rank() == kMissing) {
          while (told < kSize - 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        const Status late = sum();
        EXPECT_EQ(late.code(), StatusCode::kFailedPrecondition);
        EXPECT_NE(late.message().find("rank 1 did not come"), std::string::npos) << late.message();
        EXPECT_FALSE(sum().ok());
        EXPECT_FALSE((*exchange)->status().ok());
        ++told;
      },
      15);  // Seconds: a busy machine may not run a thread for some of them.
}

}  // namespace
}  // namespace culet
