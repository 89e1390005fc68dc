// Models, sessions and sampling through the C interface, against the C++ ones.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/culet.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/sampling.h"
#include "decoder_fixture.h"

namespace {

using ::testing::HasSubstr;

template <class T>
T Sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

#define EXPECT_FAILS(call, code, words)                \
  do {                                                 \
    EXPECT_EQ(call, code);                             \
    EXPECT_THAT(culet_last_error(), HasSubstr(words)); \
  } while (false)

class CSession : public testing::Test {
 protected:
  void SetUp() override {
    auto options = Sized<culet_engine_options>();
    options.cache_path = "off";
    ASSERT_EQ(culet_engine_create(&options, &engine_), CULET_OK) << culet_last_error();
  }

  void TearDown() override {
    culet_session_destroy(session_);
    culet_model_destroy(model_);
    culet_engine_destroy(engine_);
  }

  void Load(const std::string& folder) {
    ASSERT_EQ(culet_model_load(engine_, folder.c_str(), nullptr, &model_), CULET_OK)
        << culet_last_error();
    ASSERT_EQ(culet_model_get_info(model_, &info_), CULET_OK);
  }

  void Open(const culet_session_options& options) {
    culet_session_destroy(session_);
    session_ = nullptr;
    ASSERT_EQ(culet_session_create(model_, &options, &session_), CULET_OK) << culet_last_error();
  }

  int Add() {
    std::int32_t sequence = -1;
    EXPECT_EQ(culet_session_add(session_, &sequence), CULET_OK) << culet_last_error();
    return sequence;
  }

  std::pair<int, int> Lengths(int sequence) {
    std::int32_t length = -1, left = -1;
    EXPECT_EQ(culet_session_sequence(session_, sequence, &length, &left), CULET_OK);
    return {length, left};
  }

  culet_status Run(decltype(culet_session_step)* function,
                   const std::vector<std::int32_t>& sequences,
                   const std::vector<std::int32_t>& lengths,
                   const std::vector<std::int32_t>& tokens, const culet_outputs& outputs) {
    auto batch = Sized<culet_batch>();
    batch.count = static_cast<std::int32_t>(sequences.size());
    batch.sequences = sequences.data();
    batch.lengths = lengths.empty() ? nullptr : lengths.data();
    batch.tokens = tokens.data();
    return function(session_, &batch, &outputs);
  }

  std::string folder_ = culet::OwnGoldens("llama-linear");
  culet_engine* engine_ = nullptr;
  culet_model* model_ = nullptr;
  culet_session* session_ = nullptr;
  culet_model_info info_ = Sized<culet_model_info>();
};

TEST_F(CSession, GivesWhatTheCppSessionGives) {
  Load(folder_);
  const auto goldens = culet::ReadGoldens(folder_);
  ASSERT_TRUE(goldens.has_value());
  const std::vector<std::int32_t>& prompt = goldens->input_ids;
  const auto vocab = static_cast<std::size_t>(info_.vocab);
  const std::size_t states = static_cast<std::size_t>(info_.layers) + 1;
  const auto hidden = static_cast<std::size_t>(info_.hidden);

  const auto model = culet::DecoderModel::Load(folder_, culet::HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto gemm = culet::Gemm::Create();
  const auto dispatch = culet::MakeCpuDispatch(*gemm);
  const culet::SessionOptions same = {
      .max_sequences = 2, .max_context = 64, .block_size = 4, .max_step_tokens = 7};
  auto cpp = culet::Session::Create(*model, *dispatch, same);
  ASSERT_TRUE(cpp.ok()) << cpp.status().ToString();
  auto options = Sized<culet_session_options>();
  options.max_sequences = 2;
  options.max_context = 64;
  options.block_size = 4;
  options.max_step_tokens = 7;
  Open(options);

  const std::vector<std::int32_t> other(prompt.begin(), prompt.begin() + 3);
  const std::vector<std::int32_t> sequences = {Add(), Add()};
  ASSERT_EQ(*cpp->AddSequence(), sequences[0]);
  ASSERT_EQ(*cpp->AddSequence(), sequences[1]);
  const std::vector<culet::SequenceTokens> batch = {{sequences[0], prompt}, {sequences[1], other}};
  const auto expected = cpp->Prefill(batch, {.all_logits = true, .hidden = true});
  ASSERT_TRUE(expected.ok()) << expected.status().ToString();

  std::vector<std::int32_t> tokens = prompt, next(2, -1);
  tokens.insert(tokens.end(), other.begin(), other.end());
  std::vector<float> logits(2 * vocab, NAN), all(tokens.size() * vocab, NAN);
  std::vector<float> states_out(states * tokens.size() * hidden, NAN);
  auto outputs = Sized<culet_outputs>();
  outputs.next = next.data();
  outputs.logits = logits.data();
  outputs.all_logits = all.data();
  outputs.hidden = states_out.data();
  const std::vector<std::int32_t> lengths = {static_cast<std::int32_t>(prompt.size()), 3};
  ASSERT_EQ(Run(culet_session_prefill, sequences, lengths, tokens, outputs), CULET_OK)
      << culet_last_error();
  EXPECT_EQ(next, expected->next);
  EXPECT_EQ(all, expected->logits);
  EXPECT_EQ(states_out, expected->hidden);
  EXPECT_LT(culet::RelativeL2(all.data(), goldens->logits.data(), prompt.size() * vocab), 1e-4);
  const float* const last_of_first = &expected->logits[(prompt.size() - 1) * vocab];
  EXPECT_EQ(std::memcmp(logits.data(), last_of_first, vocab * sizeof(float)), 0);
  const float* const last_of_all = &expected->logits[(tokens.size() - 1) * vocab];
  EXPECT_EQ(std::memcmp(&logits[vocab], last_of_all, vocab * sizeof(float)), 0);

  // Decoding, one token each, with the last logits alone.
  std::vector<std::int32_t> made = {next[0]};
  auto decode = Sized<culet_outputs>();
  decode.next = next.data();
  decode.logits = logits.data();
  for (int i = 0; i < 5; ++i) {
    const std::vector<std::int32_t> given = next;
    const std::vector<culet::SequenceTokens> step = {{sequences[0], {&given[0], 1}},
                                                     {sequences[1], {&given[1], 1}}};
    const auto cpp_step = cpp->Step(step, {.logits = true});
    ASSERT_TRUE(cpp_step.ok());
    ASSERT_EQ(Run(culet_session_step, sequences, {}, given, decode), CULET_OK)
        << culet_last_error();
    EXPECT_EQ(next, cpp_step->next);
    EXPECT_EQ(logits, cpp_step->logits);
    made.push_back(next[0]);
  }
  const std::size_t known = std::min(made.size(), goldens->greedy_ids.size());
  EXPECT_TRUE(std::equal(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(known),
                         goldens->greedy_ids.begin()));
  const int length = static_cast<int>(prompt.size()) + 5;
  EXPECT_EQ(Lengths(sequences[0]), std::pair(length, 64 - length));

  auto session_info = Sized<culet_session_info>();
  ASSERT_EQ(culet_session_get_info(session_, &session_info), CULET_OK);
  EXPECT_EQ(session_info.cache_blocks, 32);
  EXPECT_EQ(session_info.max_context, 64);
  EXPECT_EQ(session_info.cache_type, CULET_FLOAT32);
  EXPECT_EQ(session_info.cache_bytes, static_cast<std::uint64_t>(cpp->cache_bytes()));
  EXPECT_GT(session_info.scratch_bytes, 0u);
}

TEST_F(CSession, DescribesItsModel) {
  Load(folder_);
  const auto config = culet::ReadDecoderConfig(folder_);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(info_.architecture, config->architecture);
  EXPECT_EQ(info_.vocab, config->vocab);
  EXPECT_EQ(info_.layers, config->layers);
  EXPECT_GT(info_.weight_bytes, info_.bytes_a_token);
  EXPECT_GT(info_.bytes_a_token, 0u);
  std::int32_t count = -1;
  std::vector<std::int32_t> ends(8, -7);
  ASSERT_EQ(culet_model_end_tokens(model_, nullptr, 0, &count), CULET_OK);
  ASSERT_EQ(count, static_cast<int>(config->eos_ids.size()));
  EXPECT_EQ(count, info_.end_tokens);
  ASSERT_EQ(culet_model_end_tokens(model_, ends.data(), 8, nullptr), CULET_OK);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ends[i], i < count ? config->eos_ids[i] : -7);
}

TEST_F(CSession, GivesTheWarningsOfItsModel) {
  Load(folder_);
  std::size_t needed = 0;
  ASSERT_EQ(culet_model_warnings(model_, nullptr, 0, &needed), CULET_OK);
  EXPECT_EQ(needed, 1u);
  EXPECT_FAILS(culet_model_warnings(nullptr, nullptr, 0, nullptr), CULET_INVALID_ARGUMENT, "model");

  std::string made = testing::TempDir() + "/culet-warnings-XXXXXX";
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  std::filesystem::copy(folder_, made, std::filesystem::copy_options::recursive);
  std::ifstream in(folder_ + "/config.json");
  std::string config{std::istreambuf_iterator<char>(in), {}};
  config.insert(config.find('{') + 1, R"("no_such_key": 8,)");
  std::ofstream(made + "/config.json") << config;
  culet_model_destroy(model_);
  model_ = nullptr;
  Load(made);
  std::string text(1000, '\0');
  ASSERT_EQ(culet_model_warnings(model_, text.data(), text.size(), &needed), CULET_OK);
  EXPECT_EQ(text.substr(0, needed), made +
                                        "/config.json: unknown keys, which have no effect: "
                                        "no_such_key\n" +
                                        '\0');
  std::filesystem::remove_all(made);
}

TEST_F(CSession, ForgetsAndReleasesPositions) {
  Load(folder_);
  auto options = Sized<culet_session_options>();
  options.max_sequences = 2;
  options.max_context = 16;
  options.block_size = 4;
  options.cache_blocks = 5;
  Open(options);
  const int one = Add(), other = Add();
  std::int32_t none = -1;
  EXPECT_FAILS(culet_session_add(session_, &none), CULET_RESOURCE_EXHAUSTED, "max_sequences");
  EXPECT_EQ(none, -1);
  std::vector<float> once(info_.vocab), again(info_.vocab);
  auto outputs = Sized<culet_outputs>();
  outputs.logits = once.data();
  ASSERT_EQ(Run(culet_session_step, {one}, {5}, {1, 2, 3, 4, 5}, outputs), CULET_OK);
  EXPECT_EQ(Lengths(one), std::pair(5, 11));
  EXPECT_EQ(Lengths(other), std::pair(0, 12));  // three free blocks
  ASSERT_EQ(culet_session_truncate(session_, one, 2), CULET_OK);
  EXPECT_EQ(Lengths(one), std::pair(2, 14));
  EXPECT_EQ(Lengths(other), std::pair(0, 16));
  EXPECT_FAILS(culet_session_truncate(session_, one, 3), CULET_INVALID_ARGUMENT, "length is 3");
  EXPECT_FAILS(culet_session_truncate(session_, one, -1), CULET_INVALID_ARGUMENT, "length is -1");
  outputs.logits = again.data();
  ASSERT_EQ(Run(culet_session_step, {one}, {3}, {3, 4, 5}, outputs), CULET_OK);
  for (int i = 0; i < info_.vocab; ++i) ASSERT_NEAR(once[i], again[i], 1e-5);
  ASSERT_EQ(culet_session_remove(session_, one), CULET_OK);
  EXPECT_EQ(Lengths(other), std::pair(0, 16));
  EXPECT_FAILS(culet_session_remove(session_, one), CULET_NOT_FOUND, "no sequence 0");
  EXPECT_FAILS(culet_session_truncate(session_, one, 0), CULET_NOT_FOUND, "no sequence 0");
  EXPECT_FAILS(culet_session_sequence(session_, 7, &none, nullptr), CULET_NOT_FOUND, "7");
}

TEST_F(CSession, FailuresLeaveSequencesAndOutputsAsTheyWere) {
  Load(folder_);
  auto options = Sized<culet_session_options>();
  options.max_context = 8;
  options.max_step_tokens = 4;
  Open(options);
  const int sequence = Add();
  std::vector<std::int32_t> next = {-5};
  auto outputs = Sized<culet_outputs>();
  outputs.next = next.data();
  const auto step = [&](const std::vector<std::int32_t>& lengths,
                        const std::vector<std::int32_t>& tokens) {
    return Run(culet_session_step, {sequence}, lengths, tokens, outputs);
  };
  EXPECT_FAILS(step({}, {info_.vocab}), CULET_INVALID_ARGUMENT, "vocabulary");
  EXPECT_FAILS(step({}, {-1}), CULET_INVALID_ARGUMENT, "vocabulary");
  EXPECT_FAILS(step({5}, {1, 2, 3, 4, 5}), CULET_INVALID_ARGUMENT, "max_step_tokens");
  EXPECT_FAILS(step({-1}, {1}), CULET_INVALID_ARGUMENT, "lengths[0] is -1");
  EXPECT_FAILS(step({0}, {1}), CULET_INVALID_ARGUMENT, "no tokens");
  EXPECT_FAILS(Run(culet_session_step, {sequence, sequence}, {}, {1, 2}, outputs),
               CULET_INVALID_ARGUMENT, "twice");
  EXPECT_FAILS(Run(culet_session_step, {9}, {}, {1}, outputs), CULET_NOT_FOUND, "9");
  EXPECT_FAILS(Run(culet_session_prefill, {sequence}, {9}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, outputs),
               CULET_RESOURCE_EXHAUSTED, "max_context");
  EXPECT_FAILS(culet_session_step(session_, nullptr, nullptr), CULET_INVALID_ARGUMENT, "batch");
  auto batch = Sized<culet_batch>();
  EXPECT_FAILS(culet_session_step(session_, &batch, nullptr), CULET_INVALID_ARGUMENT, "count is 0");
  batch.count = 1;
  EXPECT_FAILS(culet_session_step(session_, &batch, nullptr), CULET_INVALID_ARGUMENT,
               "batch.sequences is null");
  batch.sequences = next.data();
  EXPECT_FAILS(culet_session_step(session_, &batch, nullptr), CULET_INVALID_ARGUMENT,
               "batch.tokens is null");
  EXPECT_FAILS(culet_session_step(nullptr, &batch, nullptr), CULET_INVALID_ARGUMENT, "session");
  EXPECT_EQ(next[0], -5);
  EXPECT_EQ(Lengths(sequence), std::pair(0, 8));
  ASSERT_EQ(step({4}, {1, 2, 3, 4}), CULET_OK) << culet_last_error();
  EXPECT_NE(next[0], -5);
}

TEST_F(CSession, RefusesWhatNoSessionCanBe) {
  culet_model* none = nullptr;
  EXPECT_FAILS(culet_model_load(engine_, "/nonexistent", nullptr, &none), CULET_NOT_FOUND,
               "/nonexistent");
  EXPECT_FAILS(culet_model_load(engine_, nullptr, nullptr, &none), CULET_INVALID_ARGUMENT, "path");
  EXPECT_FAILS(culet_model_load(nullptr, "x", nullptr, &none), CULET_INVALID_ARGUMENT, "engine");
  auto random = Sized<culet_model_options>();
  random.random_weights = 260;
  EXPECT_FAILS(culet_model_load(engine_, folder_.c_str(), &random, &none), CULET_INVALID_ARGUMENT,
               "260");
  random.random_weights = CULET_FLOAT8_UE8M0;
  EXPECT_NE(culet_model_load(engine_, folder_.c_str(), &random, &none), CULET_OK);
  EXPECT_EQ(none, nullptr);
  Load(folder_);
  culet_session* session = nullptr;
  const auto refused = [&](std::int32_t culet_session_options::*field, std::int32_t value,
                           const char* words) {
    auto options = Sized<culet_session_options>();
    options.*field = value;
    EXPECT_FAILS(culet_session_create(model_, &options, &session), CULET_INVALID_ARGUMENT, words);
  };
  refused(&culet_session_options::max_sequences, -1, "max_sequences is -1");
  refused(&culet_session_options::max_context, -1, "max_context is -1");
  refused(&culet_session_options::max_context, info_.max_position + 1,
          "max_context is 257; the model was made for at most 256 positions");
  refused(&culet_session_options::max_step_tokens, -1, "max_step_tokens is -1");
  refused(&culet_session_options::cache_blocks, -1, "-1 blocks");
  refused(&culet_session_options::cache_type, CULET_FLOAT8_UE8M0, "cache_type is float8_ue8m0");
  refused(&culet_session_options::cache_type, 257, "257");
  refused(&culet_session_options::dispatch, 2, "dispatch is 2");
  refused(&culet_session_options::policy, 3, "policy is 3");
  refused(&culet_session_options::determinism, 3, "determinism is 3");
  refused(&culet_session_options::reserved, 1, "reserved");
  EXPECT_EQ(session, nullptr);
}

struct Watch {
  culet_session** session = nullptr;
  int sequence = 0;
  int calls = 0;
  int end_after = -1;  // calls; -1: never
  std::vector<int> lengths;
  culet_status step = CULET_OK;
};

std::int32_t Look(void* context) {
  Watch& watch = *static_cast<Watch*>(context);
  std::int32_t length = -1;
  EXPECT_EQ(culet_session_sequence(*watch.session, watch.sequence, &length, nullptr), CULET_OK);
  if (watch.lengths.empty() || watch.lengths.back() != length) watch.lengths.push_back(length);
  watch.step = culet_session_remove(*watch.session, watch.sequence);
  return ++watch.calls == watch.end_after;
}

TEST_F(CSession, TheGateSeesProgressAndEndsAStep) {
  Load(folder_);
  Watch watch;
  watch.session = &session_;
  auto options = Sized<culet_session_options>();
  options.max_step_tokens = 4;
  options.gate = Look;
  options.gate_context = &watch;
  Open(options);
  watch.sequence = Add();
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto none = Sized<culet_outputs>();
  ASSERT_EQ(Run(culet_session_prefill, {watch.sequence}, {10}, tokens, none), CULET_OK)
      << culet_last_error();
  EXPECT_EQ(watch.lengths, (std::vector<int>{4, 8, 10}));
  EXPECT_EQ(watch.step, CULET_FAILED_PRECONDITION);  // the gate may not change its session
  EXPECT_GT(watch.calls, 10);
  watch.end_after = watch.calls + 3;
  EXPECT_FAILS(Run(culet_session_step, {watch.sequence}, {}, {1}, none), CULET_FAILED_PRECONDITION,
               "gate");
  EXPECT_EQ(watch.calls, watch.end_after);
  EXPECT_EQ(Lengths(watch.sequence).first, 10);
  EXPECT_EQ(Run(culet_session_step, {watch.sequence}, {}, {1}, none), CULET_OK);
}

TEST_F(CSession, TheStopFlagEndsAStep) {
  Load(folder_);
  std::int32_t stop = 0;
  auto options = Sized<culet_session_options>();
  options.stop = &stop;
  Open(options);
  const int sequence = Add();
  const auto none = Sized<culet_outputs>();
  ASSERT_EQ(Run(culet_session_step, {sequence}, {}, {1}, none), CULET_OK);
  stop = 1;
  EXPECT_FAILS(Run(culet_session_step, {sequence}, {}, {1}, none), CULET_FAILED_PRECONDITION,
               "stopped");
  EXPECT_EQ(Lengths(sequence).first, 1);
  stop = 0;
  ASSERT_EQ(Run(culet_session_step, {sequence}, {}, {1}, none), CULET_OK);
}

// One session from several threads, and sessions beside each other; the model goes before them.
TEST_F(CSession, ServesSeveralThreads) {
  auto random = Sized<culet_model_options>();
  random.random_weights = CULET_BFLOAT16;
  random.seed = 3;
  ASSERT_EQ(culet_model_load(engine_, folder_.c_str(), &random, &model_), CULET_OK)
      << culet_last_error();
  ASSERT_EQ(culet_model_get_info(model_, &info_), CULET_OK);
  constexpr int kThreads = 3, kTokens = 6;
  auto options = Sized<culet_session_options>();
  options.max_sequences = kThreads;
  options.max_context = 32;
  options.cache_type = CULET_BFLOAT16;
  options.determinism = CULET_DETERMINISM_BATCH_INVARIANT;
  Open(options);
  culet_session* own[kThreads];
  std::vector<int> sequences;
  for (int i = 0; i < kThreads; ++i) {
    sequences.push_back(Add());
    ASSERT_EQ(culet_session_create(model_, &options, &own[i]), CULET_OK) << culet_last_error();
    std::int32_t sequence = -1;
    ASSERT_EQ(culet_session_add(own[i], &sequence), CULET_OK);
    ASSERT_EQ(sequence, 0);
  }
  culet_model_destroy(model_);
  model_ = nullptr;
  std::vector<std::vector<std::int32_t>> shared(kThreads), alone(kThreads);
  std::vector<int> failures(kThreads, 0);
  const auto go = [&](culet_session* session, int sequence, int first,
                      std::vector<std::int32_t>& made) {
    std::int32_t token = first, number = sequence;
    auto batch = Sized<culet_batch>();
    batch.count = 1;
    batch.sequences = &number;
    batch.tokens = &token;
    auto outputs = Sized<culet_outputs>();
    outputs.next = &token;
    int failed = 0;
    for (int i = 0; i < kTokens; ++i) {
      failed += culet_session_step(session, &batch, &outputs) != CULET_OK;
      made.push_back(token);
    }
    return failed;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      failures[i] = go(session_, sequences[i], i + 1, shared[i]) + go(own[i], 0, i + 1, alone[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(failures[i], 0);
    EXPECT_EQ(shared[i], alone[i]);
    culet_session_destroy(own[i]);
  }
}

TEST_F(CSession, TheReferenceIsADispatchToo) {
  Load(folder_);
  std::vector<float> logits[2];
  for (const int dispatch : {CULET_DISPATCH_KERNELS, CULET_DISPATCH_REFERENCE}) {
    auto options = Sized<culet_session_options>();
    options.dispatch = dispatch;
    options.determinism = CULET_DETERMINISM_BATCH_INVARIANT;
    options.policy = CULET_POLICY_REUSE;
    Open(options);
    logits[dispatch].resize(info_.vocab);
    auto outputs = Sized<culet_outputs>();
    outputs.logits = logits[dispatch].data();
    ASSERT_EQ(Run(culet_session_step, {Add()}, {3}, {5, 6, 7}, outputs), CULET_OK)
        << culet_last_error();
  }
  EXPECT_NE(logits[0], logits[1]);  // FP32 sums are not double's
  EXPECT_LT(culet::RelativeL2(logits[0].data(), logits[1].data(), logits[0].size()), 1e-5);
}

TEST_F(CSession, DrawsWhatTheCppSessionDraws) {
  Load(folder_);
  auto options = Sized<culet_session_options>();
  options.max_sequences = 2;
  Open(options);
  const int one = Add(), two = Add();
  auto sampling = Sized<culet_sampling>();
  sampling.temperature = 3;
  sampling.top_k = 40;
  sampling.seed = std::uint64_t{7} << 33;
  ASSERT_EQ(culet_session_sampling(session_, two, &sampling), CULET_OK) << culet_last_error();
  std::vector<float> logits(2 * static_cast<std::size_t>(info_.vocab));
  std::int32_t next[2] = {-1, -1};
  auto outputs = Sized<culet_outputs>();
  outputs.next = next;
  outputs.logits = logits.data();
  std::set<std::int32_t> drawn;
  for (int length = 3; length < 20; ++length) {
    const std::vector<std::int32_t> lengths =
        length == 3 ? std::vector<std::int32_t>{3, 3} : std::vector<std::int32_t>{1, 1};
    const std::vector<std::int32_t> tokens = length == 3
                                                 ? std::vector<std::int32_t>{5, 6, 7, 5, 6, 7}
                                                 : std::vector<std::int32_t>{next[0], next[1]};
    ASSERT_EQ(Run(culet_session_step, {one, two}, lengths, tokens, outputs), CULET_OK)
        << culet_last_error();
    const auto vocab = static_cast<std::size_t>(info_.vocab);
    const std::span<const float> rows(logits);
    EXPECT_EQ(next[0], *culet::SampleToken(rows.first(vocab), {}, 0));
    EXPECT_EQ(next[1],
              *culet::SampleToken(rows.subspan(vocab),
                                  {.temperature = 3, .top_k = 40, .seed = std::uint64_t{7} << 33},
                                  static_cast<std::uint64_t>(length)));
    drawn.insert(next[1]);
  }
  EXPECT_GT(drawn.size(), 5u);
  EXPECT_EQ(culet_session_sampling(session_, two, nullptr), CULET_OK);
  EXPECT_FAILS(culet_session_sampling(session_, 5, &sampling), CULET_NOT_FOUND, "no sequence 5");
  EXPECT_FAILS(culet_session_sampling(nullptr, 0, &sampling), CULET_INVALID_ARGUMENT, "session");
  sampling.min_p = 3;
  EXPECT_FAILS(culet_session_sampling(session_, two, &sampling), CULET_INVALID_ARGUMENT,
               "min_p is 3");
  // A program that was compiled when there was no seed.
  sampling.min_p = 0;
  sampling.struct_size = offsetof(culet_sampling, seed);
  EXPECT_EQ(culet_session_sampling(session_, two, &sampling), CULET_OK) << culet_last_error();
}

TEST(CSample, DrawsWhatTheOptionsAllow) {
  const std::vector<float> logits = {1, 3, 3, -INFINITY, 2};
  const auto count = static_cast<std::int32_t>(logits.size());
  std::int32_t token = -1;
  ASSERT_EQ(culet_sample(logits.data(), count, nullptr, nullptr, &token), CULET_OK);
  EXPECT_EQ(token, 1);
  auto sampling = Sized<culet_sampling>();
  sampling.temperature = 0.5f;
  std::uint64_t state = 1, same = 1;
  std::int32_t other = -1;
  ASSERT_EQ(culet_sample(logits.data(), count, &sampling, &state, &token), CULET_OK);
  EXPECT_NE(state, 1u);
  ASSERT_EQ(culet_sample(logits.data(), count, &sampling, &same, &other), CULET_OK);
  EXPECT_EQ(token, other);
  EXPECT_FAILS(culet_sample(logits.data(), count, &sampling, nullptr, &token),
               CULET_INVALID_ARGUMENT, "state is null");
  EXPECT_FAILS(culet_sample(logits.data(), 0, &sampling, &state, &token), CULET_INVALID_ARGUMENT,
               "no logits");
  sampling.seed = 4;
  EXPECT_FAILS(culet_sample(logits.data(), count, &sampling, &state, &token),
               CULET_INVALID_ARGUMENT, "sampling.seed is 4");
  sampling.seed = 0;
  sampling.top_p = 2;
  EXPECT_FAILS(culet_sample(logits.data(), count, &sampling, &state, &token),
               CULET_INVALID_ARGUMENT, "top_p is 2");
}

}  // namespace
