// Sessions on a device that fails, at each thing that is asked of it in turn: once, which the
// session survives, or for good, which it can be closed after. The device is late, too: copies,
// replays and frees wait in a queue until someone waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "graph/cuda/dispatch.h"
#include "host_cuda/host_cuda.h"

namespace culet {
namespace {

constexpr std::string_view kLaunch = "a launch";

class FailingDevice final : public DeviceMemory {
 public:
  FailingDevice() = default;
  FailingDevice(const FailingDevice&) = delete;
  FailingDevice& operator=(const FailingDevice&) = delete;
  ~FailingDevice() override { End(); }

  /// The n-th request fails, and with a permanent fault all later ones too.
  void FailAt(std::size_t n, bool for_good) { fail_at_ = n, for_good_ = for_good; }
  const std::vector<std::string_view>& asked() const { return asked_; }
  bool failed() const { return fail_at_ && asked_.size() > *fail_at_; }

  bool shares = true;         // memory with the host
  int buffers = 0;            // there now, shared ones too
  bool freed_in_use = false;  // shared memory that a copy was to read

  Result<DevicePtr> Allocate(std::size_t bytes) override {
    CULET_RETURN_IF_ERROR(Ask("memory"));
    ++buffers;
    return HostMemory().Allocate(bytes);
  }
  void Free(DevicePtr pointer) noexcept override {
    Queue(
        [this, pointer]() -> Status {
          --buffers;
          HostMemory().Free(pointer);
          return {};
        },
        /*always=*/true);
  }
  Result<void*> AllocateShared(std::size_t bytes) override {
    if (!shares) return Status(StatusCode::kUnsupported, "no memory is shared");
    CULET_RETURN_IF_ERROR(Ask("shared memory"));
    ++buffers;
    const auto pointer = HostMemory().Allocate(bytes);
    if (!pointer) return pointer.status();
    return FromDevicePtr<void>(*pointer);
  }
  void FreeShared(void* pointer) noexcept override {
    freed_in_use |= reads_shared_ > 0;
    --buffers;
    HostMemory().Free(ToDevicePtr(pointer));
  }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t) override {
    CULET_RETURN_IF_ERROR(Ask("an upload"));
    const auto* const data = static_cast<const std::byte*>(from);
    Queue([to, held = std::vector(data, data + bytes)]() -> Status {
      std::memcpy(FromDevicePtr<void>(to), held.data(), held.size());
      return {};
    });
    return {};
  }
  Status StartUpload(DevicePtr to, const void* shared, std::size_t bytes, cudaStream_t) override {
    CULET_RETURN_IF_ERROR(Ask("an upload of shared memory"));
    ++reads_shared_;
    Queue(
        [this, to, shared, bytes]() -> Status {
          --reads_shared_;
          if (!gone_) std::memcpy(FromDevicePtr<void>(to), shared, bytes);
          return {};
        },
        /*always=*/true);
    return {};
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    CULET_RETURN_IF_ERROR(Synchronize(stream));
    std::memcpy(to, FromDevicePtr<const void>(from), bytes);
    return {};
  }
  Status Synchronize(cudaStream_t) override {
    CULET_RETURN_IF_ERROR(Ask("a wait"));
    return Run(queued_);
  }
  bool reads_host_memory() const noexcept override { return false; }

  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    CULET_RETURN_IF_ERROR(Ask("an event"));
    return std::unique_ptr<DeviceEvent>(std::make_unique<Event>(*this));
  }

  Result<std::unique_ptr<RecordedLaunches>> Record(const LaunchFunction& launches) {
    CULET_RETURN_IF_ERROR(Ask("a recording"));
    return std::unique_ptr<RecordedLaunches>(std::make_unique<Recording>(*this, launches));
  }

  /// Whether something is in the queue.
  bool waits() const { return done_ < queued_; }
  /// All that was freed is given back.
  void End() { static_cast<void>(Run(queued_)); }

  /// A kernel is launched: by the host, or by the queue.
  cudaError_t OnLaunch() {
    if (running_) return gone_ ? cudaErrorLaunchFailure : cudaSuccess;
    if (!Ask(kLaunch).ok() || !Run(queued_).ok()) return cudaErrorLaunchFailure;
    return cudaSuccess;
  }

 private:
  class Event final : public DeviceEvent {
   public:
    explicit Event(FailingDevice& device) : device_(device) {}
    Status Record(cudaStream_t) override {
      CULET_RETURN_IF_ERROR(device_.Ask("an event's record"));
      behind_ = device_.queued_;
      return {};
    }
    Status Wait() override {
      CULET_RETURN_IF_ERROR(device_.Ask("a wait for an event"));
      return device_.Run(behind_);
    }

   private:
    FailingDevice& device_;
    std::size_t behind_ = 0;
  };

  class Recording final : public RecordedLaunches {
   public:
    Recording(FailingDevice& device, LaunchFunction launches)
        : device_(device), launches_(std::move(launches)) {}
    ~Recording() override { device_.End(); }  // replays go on to their end
    Status Replay(cudaStream_t stream) override {
      CULET_RETURN_IF_ERROR(device_.Ask("a replay"));
      device_.Queue([this, stream]() -> Status { return launches_(stream); });
      return {};
    }

   private:
    FailingDevice& device_;
    LaunchFunction launches_;
  };

  struct Work {
    std::function<Status()> run;
    bool always;  // also on a device that is gone
  };

  Status Ask(std::string_view what) {
    const std::size_t n = asked_.size();
    asked_.push_back(what);
    if (!fail_at_ || n < *fail_at_ || (n > *fail_at_ && !for_good_)) return {};
    gone_ = for_good_;
    const bool memory = what == "memory" || what == "shared memory";
    return Status(memory ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                  "the device has failed");
  }
  void Queue(std::function<Status()> run, bool always = false) {
    queue_.push_back({std::move(run), always});
    ++queued_;
  }
  // The first `behind` of all queued operations are complete then.
  Status Run(std::size_t behind) {
    Status status;
    while (!running_ && done_ < behind) {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      ++done_;
      running_ = true;
      if (!gone_ || work.always) {
        const Status done = work.run();
        if (status.ok()) status = done;
      }
      running_ = false;
    }
    return status;
  }

  std::vector<std::string_view> asked_;
  std::optional<std::size_t> fail_at_;
  bool for_good_ = false, gone_ = false, running_ = false;
  std::deque<Work> queue_;
  std::size_t queued_ = 0, done_ = 0;
  int reads_shared_ = 0;
};

using Tokens = std::vector<std::int32_t>;

DecoderConfig Config() {
  return *ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32})",
                             "config");
}

constexpr std::size_t kTokens = 2 + 2 * 9 + 2 + 1 + 2 * 6;  // that a Server gets

// What a server asks of a session, each thing once more where it fails. Ends early on a device that
// is gone.
class Server {
 public:
  Server(Gemm& gemm, FailingDevice& device) : gemm_(gemm), device_(device) {}

  /// All tokens that it got.
  Tokens Run() {
    auto model =
        Twice([&] { return DecoderModel::Random(Config(), DataType::kBfloat16, device_); });
    if (!model) return made_;
    const auto dispatch = cuda_ops::MakeDispatch(
        gemm_, device_, {}, [&](const LaunchFunction& f) { return device_.Record(f); });
    auto session = Twice([&] {
      return Session::Create(*model, *dispatch,
                             {.max_sequences = 2,
                              .max_context = 32,
                              .block_size = 4,
                              .cache_blocks = 12,
                              .cache_type = DataType::kFloat8_e4m3});
    });
    if (!session) return made_;
    session_ = &*session;
    Work();
    return made_;
  }

 private:
  void Work() {
    const int a = *session_->AddSequence(), b = *session_->AddSequence();
    const Tokens first = {5, 17, 30, 2, 9}, second = {1, 2, 3};
    if (!Read({{a, first}, {b, second}})) return;
    if (!Decode({a, b}, 9)) return;
    if (!Read({{a, second}, {b, {&first[0], 1}}})) return;
    EXPECT_TRUE(session_->Truncate(a, 6).ok());
    EXPECT_TRUE(session_->RemoveSequence(b).ok());
    const int c = *session_->AddSequence();
    EXPECT_TRUE(session_->SetSampling(c, {.temperature = 1.5f, .seed = 3}).ok());
    const Tokens third = {7, 7, 8, 1, 0, 4};
    if (!Read({{c, third}})) return;
    last_[static_cast<std::size_t>(a)] = 11;
    Decode({a, c}, 6);
  }

  bool Read(const std::vector<SequenceTokens>& batch) {
    std::vector<int> lengths;
    for (const SequenceTokens& part : batch) lengths.push_back(*session_->LengthOf(part.sequence));
    const auto read = Twice([&] {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(*session_->LengthOf(batch[i].sequence), lengths[i]);
      }
      return session_->Prefill(batch);
    });
    if (!read) return false;
    for (std::size_t i = 0; i < batch.size(); ++i) Took(batch[i].sequence, read->next[i]);
    return true;
  }

  bool Decode(const std::vector<int>& sequences, int steps) {
    std::vector<int> lengths, heard(sequences.size());
    for (const int sequence : sequences) lengths.push_back(*session_->LengthOf(sequence));
    const auto made = Twice([&]() -> Result<std::vector<DecodedTokens>> {
      std::vector<SequenceTokens> batch;
      Tokens last = last_;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_EQ(*session_->LengthOf(sequences[i]), lengths[i] + heard[i]);
        EXPECT_EQ(heard[i], heard[0]);
        batch.push_back({sequences[i], {&last[static_cast<std::size_t>(sequences[i])], 1}});
      }
      if (heard[0] == steps) return std::vector<DecodedTokens>();  // it failed behind the last
      return session_->Decode(
          batch, {.steps = steps - heard[0], .on_token = [&](std::size_t part, std::int32_t token) {
                    ++heard[part];
                    Took(sequences[part], token);
                    return true;
                  }});
    });
    return made.has_value();
  }

  void Took(int sequence, std::int32_t token) {
    last_[static_cast<std::size_t>(sequence)] = token;
    made_.push_back(token);
  }

  // None on a device that is gone.
  template <class Call>
  auto Twice(const Call& call) -> std::optional<std::remove_cvref_t<decltype(*call())>> {
    auto result = call();
    if (!result) {
      EXPECT_TRUE(device_.failed()) << result.status().ToString();
      result = call();
    }
    if (result) return *std::move(result);
    EXPECT_THAT(result.status().ToString(),
                testing::AnyOf(testing::HasSubstr("the device has failed"),
                               testing::HasSubstr("a launch that was to fail")));
    return std::nullopt;
  }

  Gemm& gemm_;
  FailingDevice& device_;
  Session* session_ = nullptr;
  Tokens made_, last_ = {0, 0};
};

class LateDevice : public testing::Test {
 protected:
  ~LateDevice() override { host_cuda::OnLaunch(nullptr); }
};

class FailingDevices : public LateDevice, public testing::WithParamInterface<bool> {
 protected:
  Tokens Serve(FailingDevice& device) {
    host_cuda::OnLaunch([&] { return device.OnLaunch(); });
    return Server(gemm_, device).Run();
  }

  Gemm gemm_ = *Gemm::Create();
};

TEST_P(FailingDevices, SessionsGoOnOrClose) {
  const bool for_good = GetParam();
  Tokens expected;
  std::vector<std::string_view> asked;
  {
    FailingDevice device;
    expected = Serve(device);
    asked = device.asked();
    device.End();
    EXPECT_EQ(device.buffers, 0);
  }
  ASSERT_EQ(expected.size(), kTokens);
  // Of launches some, and fewer where the end is the same whatever fails.
  std::size_t launches = 0;
  for (std::size_t n = 0; n < asked.size(); ++n) {
    if (asked[n] == kLaunch ? ++launches % 17 != 0 : for_good && n % 3 != 0) continue;
    SCOPED_TRACE(std::string(asked[n]) + ", number " + std::to_string(n));
    FailingDevice device;
    device.FailAt(n, for_good);
    const Tokens made = Serve(device);
    if (for_good) {
      EXPECT_EQ(made, Tokens(expected.begin(),
                             expected.begin() + static_cast<std::ptrdiff_t>(made.size())));
    } else {
      EXPECT_EQ(made, expected);
    }
    EXPECT_TRUE(device.failed());
    EXPECT_FALSE(device.freed_in_use && !for_good);  // what is gone reads nothing
    device.End();
    EXPECT_EQ(device.buffers, 0);
  }
}

// The host then downloads what the device logs.
TEST_F(LateDevice, MayShareNoMemoryWithTheHost) {
  Gemm gemm = *Gemm::Create();
  Tokens made[2];
  for (const bool shares : {false, true}) {
    FailingDevice device;
    device.shares = shares;
    host_cuda::OnLaunch([&] { return device.OnLaunch(); });
    made[shares] = Server(gemm, device).Run();
  }
  EXPECT_EQ(made[0].size(), kTokens);
  EXPECT_EQ(made[0], made[1]);
}

// A step that is stopped before its first launch: its inputs may be on their way.
TEST_F(LateDevice, AStoppedStepCanBeClosedBehind) {
  FailingDevice device;
  host_cuda::OnLaunch([&] { return device.OnLaunch(); });
  Gemm gemm = *Gemm::Create();
  {
    const auto model = DecoderModel::Random(Config(), DataType::kBfloat16, device);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const auto dispatch = cuda_ops::MakeDispatch(gemm, device, {});
    auto session = Session::Create(*model, *dispatch, {.max_context = 32});
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const int sequence = *session->AddSequence();
    const Tokens prompt = {1, 2, 3};
    ASSERT_TRUE(session->Prefill(sequence, prompt).ok());
    session->SetGate([] { return Status(StatusCode::kFailedPrecondition, "enough"); });
    EXPECT_EQ(session->Prefill(sequence, prompt).status().code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_FALSE(device.freed_in_use);
  device.End();
  EXPECT_EQ(device.buffers, 0);
}

// Steps run ahead of the token that a caller stops at.
TEST_F(LateDevice, NothingRunsOnBehindADecode) {
  FailingDevice device;
  host_cuda::OnLaunch([&] { return device.OnLaunch(); });
  Gemm gemm = *Gemm::Create();
  const auto model = DecoderModel::Random(Config(), DataType::kBfloat16, device);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto dispatch = cuda_ops::MakeDispatch(
      gemm, device, {}, [&](const LaunchFunction& launches) { return device.Record(launches); });
  auto session = Session::Create(*model, *dispatch, {.max_context = 32});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  const Tokens prompt = {1, 2, 3};
  ASSERT_TRUE(session->Prefill(sequence, prompt).ok());
  int heard = 0, waiting = 0;
  const SequenceTokens part{sequence, {&prompt[0], 1}};
  const auto made = session->Decode({&part, 1}, {.steps = 20, .on_token = [&](auto, auto) {
                                                   if (device.waits()) ++waiting;
                                                   return ++heard < 6;
                                                 }});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_GE(waiting, 4) << "the device did not wait for the host";
  EXPECT_FALSE(device.waits());
  EXPECT_EQ(*session->LengthOf(sequence), 3 + 6);
}

INSTANTIATE_TEST_SUITE_P(All, FailingDevices, testing::Bool(),
                         [](const auto& info) { return info.param ? "for_good" : "once"; });

}  // namespace
}  // namespace culet
