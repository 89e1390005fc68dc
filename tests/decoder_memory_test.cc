// No node touches memory that is not its own: every allocation starts as NaN between guard zones,
// every launch gets scratch memory of its own, of just the size that it asked for, values become
// NaN once nobody reads them any more, and after each launch nothing but the node's value may have
// changed. The outputs are those that they ought to be all the same. And steps keep no memory.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "asan.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "decoder_fixture.h"

namespace {

std::atomic<std::ptrdiff_t> live_bytes = 0;  // from operator new, whatever the C library does

void* Counted(std::size_t bytes, std::size_t alignment) {
  // Before the memory lies its size.
  const std::size_t offset = std::max(alignment, alignof(std::max_align_t));
  const std::size_t whole = (offset + bytes + offset - 1) / offset * offset;
  auto* const start = static_cast<std::byte*>(std::aligned_alloc(offset, whole));
  if (start == nullptr) throw std::bad_alloc();
  std::memcpy(start, &bytes, sizeof bytes);
  live_bytes += static_cast<std::ptrdiff_t>(bytes);
  return start + offset;
}

void Uncounted(void* pointer, std::size_t alignment) noexcept {
  if (pointer == nullptr) return;
  std::byte* const start =
      static_cast<std::byte*>(pointer) - std::max(alignment, alignof(std::max_align_t));
  std::size_t bytes = 0;
  std::memcpy(&bytes, start, sizeof bytes);
  live_bytes -= static_cast<std::ptrdiff_t>(bytes);
  std::free(start);
}

}  // namespace

void* operator new(std::size_t bytes) { return Counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Counted(bytes, static_cast<std::size_t>(alignment));
}
// The standard library's own call the others; a sanitizer's would not.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return Counted(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* pointer) noexcept { Uncounted(pointer, 1); }
void operator delete(void* pointer, std::size_t) noexcept { Uncounted(pointer, 1); }
void operator delete(void* pointer, std::align_val_t alignment) noexcept {
  Uncounted(pointer, static_cast<std::size_t>(alignment));
}
void operator delete(void* pointer, std::size_t, std::align_val_t alignment) noexcept {
  Uncounted(pointer, static_cast<std::size_t>(alignment));
}

namespace culet {
namespace {

constexpr int kPoison = 0xff;  // NaN in every floating-point type, -1 as an index

// The host's memory between guard zones.
class GuardedMemory final : public DeviceMemory {
 public:
  struct Piece {
    std::byte* data;  // between two guards
    std::size_t bytes;
  };

  ~GuardedMemory() override { EXPECT_TRUE(pieces_.empty()) << "memory was not freed"; }

  Result<DevicePtr> Allocate(std::size_t bytes) override {
    auto whole = HostMemory().Allocate(bytes + 2 * kGuard);
    if (!whole) return whole.status();
    auto* const start = FromDevicePtr<std::byte>(*whole);
    std::memset(start, kGuardByte, bytes + 2 * kGuard);
    std::memset(start + kGuard, kPoison, bytes);
    pieces_.push_back({start + kGuard, bytes});
    return ToDevicePtr(start + kGuard);
  }
  void Free(DevicePtr pointer) noexcept override {
    const auto piece = std::ranges::find(pieces_, FromDevicePtr<std::byte>(pointer), &Piece::data);
    if (piece == pieces_.end()) {
      ADD_FAILURE() << "memory that was not allocated is freed";
      return;
    }
    EXPECT_TRUE(Whole(*piece));
    HostMemory().Free(pointer - kGuard);
    pieces_.erase(piece);
  }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    return HostMemory().Upload(to, from, bytes, stream);
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    return HostMemory().Download(to, from, bytes, stream);
  }
  Status Synchronize(cudaStream_t stream) override { return HostMemory().Synchronize(stream); }
  bool reads_host_memory() const noexcept override { return true; }

  const std::list<Piece>& pieces() const { return pieces_; }
  static bool Whole(const Piece& piece) {
    const auto untouched = [](const std::byte* guard) {
      return std::all_of(guard, guard + kGuard,
                         [](std::byte b) { return b == std::byte{kGuardByte}; });
    };
    return untouched(piece.data - kGuard) && untouched(piece.data + piece.bytes);
  }

 private:
  static constexpr std::size_t kGuard = 1024;  // keeps the alignment
  static constexpr int kGuardByte = 0xa5;
  std::list<Piece> pieces_;
};

// Another dispatch with guarded memory.
class Guarded final : public KernelDispatch {
 public:
  Guarded(KernelDispatch& inner, GuardedMemory& memory) : inner_(inner), memory_(memory) {}

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    return inner_.supports(graph, id);
  }
  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    return inner_.prepare(graph, id);
  }
  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    return inner_.workspace(graph, id, prepared);
  }
  Status launch(const NodeLaunch& launch) override { return inner_.launch(launch); }
  DeviceMemory& memory() override { return memory_; }

  // launch goes to the other dispatch, so nothing calls these.
  Status dispatch_mul_mat(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t, std::uint32_t,
                          std::uint32_t) override {
    return Never();
  }
  Status dispatch_rms_norm(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t, std::uint32_t,
                           float) override {
    return Never();
  }
  Status dispatch_add(DevicePtr, DevicePtr, DevicePtr, std::size_t) override { return Never(); }
  Status dispatch_rope(const TensorNode&, DevicePtr, DevicePtr, std::size_t, std::uint32_t,
                       std::uint32_t) override {
    return Never();
  }
  Status dispatch_attention(const TensorNode&, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                            std::uint32_t, std::size_t) override {
    return Never();
  }
  Status dispatch_copy(DevicePtr, DevicePtr, std::size_t) override { return Never(); }
  Status dispatch_mul(DevicePtr, DevicePtr, DevicePtr, std::size_t) override { return Never(); }
  Status dispatch_silu(DevicePtr, DevicePtr, std::size_t) override { return Never(); }

 private:
  static Status Never() { return Status(StatusCode::kInternal, "not to be called"); }
  KernelDispatch& inner_;
  GuardedMemory& memory_;
};

// The bytes of a launch's own: [first, second).
using Range = std::pair<const std::byte*, const std::byte*>;

std::vector<Range> MayChange(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const auto* const out = FromDevicePtr<const std::byte>(launch.output);
  std::vector<Range> rows;
  if (node.op != TensorOp::kKvWrite) {
    for (std::size_t i = 0; i < launch.outputs.size(); ++i) {
      const auto* const value = FromDevicePtr<const std::byte>(launch.outputs[i]);
      rows.push_back({value, value + BytesOf(launch.graph->node(launch.output_ids[i]))});
    }
    return rows;
  }
  const std::int64_t row = BytesOf(node) / node.shape.rows;
  const auto* const slots = FromDevicePtr<const std::int32_t>(launch.input(2));
  for (std::int64_t i = 0; i < launch.input_node(1).shape.rows; ++i) {
    rows.push_back({out + slots[i] * row, out + (slots[i] + 1) * row});
  }
  return rows;
}

struct Case {
  const char* name;
  bool reference;
};

class DecoderMemory : public testing::TestWithParam<Case> {
 protected:
  // Launches one node and looks at all memory around it.
  Status Launch(const GraphExecutor& executor, KernelDispatch& dispatch, const NodeLaunch& launch) {
    const std::string what = DescribeNode(*launch.graph, launch.id);
    // Scratch memory of just the bytes that this node asked for.
    NodeLaunch own_scratch = launch;
    own_scratch.workspace_bytes = dispatch.workspace(*launch.graph, launch.id, launch.prepared);
    auto scratch = DeviceBuffer::Create(memory_, own_scratch.workspace_bytes);
    if (!scratch) return scratch.status();
    own_scratch.workspace = scratch->get();
    std::vector<std::vector<std::byte>> before;
    for (const auto& piece : memory_.pieces()) {
      before.emplace_back(piece.data, piece.data + piece.bytes);
    }
    CULET_RETURN_IF_ERROR(dispatch.launch(own_scratch));
    for (const Range& own : MayChange(launch)) {
      std::size_t i = 0;
      for (const auto& piece : memory_.pieces()) {
        std::vector<std::byte>& old = before[i++];
        if (own.first >= piece.data && own.second <= piece.data + piece.bytes) {
          std::copy(own.first, own.second, old.begin() + (own.first - piece.data));
        }
      }
    }
    std::size_t i = 0;
    for (const auto& piece : memory_.pieces()) {
      const std::vector<std::byte>& old = before[i++];
      EXPECT_TRUE(GuardedMemory::Whole(piece)) << what << " writes beside its memory";
      if (ToDevicePtr(piece.data) == scratch->get()) continue;
      EXPECT_EQ(std::memcmp(old.data(), piece.data, piece.bytes), 0)
          << what << " changes what is not its own";
    }
    for (int id = 0; id < executor.graph().size(); ++id) {
      const Placement& place = executor.plan().placements[static_cast<std::size_t>(id)];
      if (place.kind != Placement::Kind::kArena || place.last != launch.id) continue;
      std::memset(FromDevicePtr<void>(executor.address(id)), kPoison,
                  static_cast<std::size_t>(place.bytes));
    }
    return {};
  }

  GuardedMemory memory_;  // freed last
};

TEST_P(DecoderMemory, NothingButTheOwnValueChanges) {
  const std::string folder = OwnGoldens(GetParam().name);
  const auto goldens = ReadGoldens(folder);
  ASSERT_TRUE(goldens.has_value()) << folder;
  auto model = DecoderModel::Load(folder, HostMemory());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  Gemm gemm = *Gemm::Create();
  const auto inner = GetParam().reference ? MakeReferenceDispatch() : MakeCpuDispatch(gemm);
  Guarded dispatch(*inner, memory_);
  auto session =
      Session::Create(*model, dispatch, {.max_sequences = 2, .max_context = 32, .block_size = 4});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  int launches = 0;
  session->SetHook([&](KernelDispatch& of, const NodeLaunch& launch) {
    ++launches;
    return Launch(*session->last_executor(), of, launch);
  });
  const int whole = *session->AddSequence(), other = *session->AddSequence();
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  const std::span<const std::int32_t> ids = goldens->input_ids;
  // A prompt beside another, steps of one token, the rest with the states of all layers.
  const auto check = [&](const std::vector<SequenceTokens>& batch, std::size_t last, bool hidden) {
    const auto result = session->Step(batch, {.logits = true, .hidden = hidden});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_LE(RelativeL2(result->logits.data(), goldens->logits.data() + last * vocab, vocab), 1e-5)
        << "position " << last;
  };
  check({{whole, ids.first(9)}, {other, ids.subspan(3, 6)}}, 8, false);
  check({{whole, ids.subspan(9, 1)}}, 9, false);
  check({{whole, ids.subspan(10, 1)}, {other, ids.first(1)}}, 10, true);
  check({{whole, ids.subspan(11)}}, ids.size() - 1, true);
  EXPECT_GT(launches, 40);
}

// Past the edges of many blocks and of 256 keys: the table of the sequence's blocks grows, an index
// a block, nothing else does.
TEST(DecoderGrowth, StepsKeepNoMemory) {
  constexpr int kSteps = 600, kWarmUp = 3, kBlock = 16;
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64})",
                                         "config");
  const auto model = DecoderModel::Random(*config, DataType::kBfloat16, HostMemory());
  ASSERT_TRUE(model.ok());
  Gemm gemm = *Gemm::Create();
  const auto inner = MakeCpuDispatch(gemm);
  GuardedMemory memory;
  Guarded dispatch(*inner, memory);
  auto session =
      Session::Create(*model, dispatch, {.max_context = kSteps + 1, .block_size = kBlock});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const int sequence = *session->AddSequence();
  std::int32_t token = 1;
  std::ptrdiff_t bytes = 0;
  std::size_t pieces = 0;
  for (int step = 0; step < kSteps; ++step) {
    const SequenceTokens next{sequence, {&token, 1}};
    const auto result = session->Step({&next, 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    token = (result->next[0] + step) % 96;
    if (step != kWarmUp) continue;
    bytes = live_bytes;
    pieces = memory.pieces().size();
  }
  EXPECT_EQ(memory.pieces().size(), pieces);
  EXPECT_LE(live_bytes - bytes, 2 * sizeof(std::int32_t) * (kSteps / kBlock + 1));
}

// A context of 32,768 positions of models whose last layer alone sees all of them: behind windows,
// behind nothing, behind linear attention. The last positions are the reference's, which leaves out
// what they do not depend on: how tokens before them attend in that layer. Memory is what
// CacheBytes says, but for steps' inputs and values, and does not grow with the context.
// Sanitizers, with which keys take 50 times as long, see an eighth of it.
TEST(DecoderGrowth, ContextOf32768) {
  constexpr int kContext = kSanitized ? 4096 : 32768, kLast = 24, kStep = kContext / 16;
  constexpr std::int64_t kWindow = 64, kBlock = 16, kRing = kWindow + kStep + 259;
  struct LongCase {
    const char* name;
    const char* config;
    std::size_t cache_floats;  // but for what a ring is rounded up to
  };
  const std::size_t whole = 2 * std::size_t{kContext} * 8, blocks = (kRing + kBlock - 1) / kBlock;
  const LongCase cases[] = {
      {"windows", R"("architectures": ["Olmo3ForCausalLM"], "num_hidden_layers": 3,
         "sliding_window": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 8,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"])",
       whole + 2 * 2 * blocks * kBlock * 8},
      {"no windows", R"("architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1,
         "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8, "hidden_size": 8)",
       whole},
      {"linear attention", R"("architectures": ["Qwen3NextForCausalLM"], "num_hidden_layers": 3,
         "full_attention_interval": 3, "mlp_only_layers": [0, 1, 2], "num_attention_heads": 1,
         "num_key_value_heads": 1, "head_dim": 8, "hidden_size": 8, "linear_num_key_heads": 1,
         "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8)",
       whole + 2 * (3 * 32 + 2 * 8 * 8)}};
  std::vector<std::int32_t> ids(kContext);
  for (int i = 0; i < kContext; ++i) ids[static_cast<std::size_t>(i)] = (i * 37 + i / 64 * 11) % 64;
  const std::span<const std::int32_t> prompt(ids);
  const SessionOptions options{
      .max_context = kContext, .block_size = kBlock, .max_step_tokens = kStep};
  for (const LongCase& c : cases) {
    const auto config = ParseDecoderConfig(std::string("{") + c.config +
                                               R"(, "vocab_size": 64, "intermediate_size": 16,
                                                  "max_position_embeddings": 32768})",
                                           "config");
    ASSERT_TRUE(config.ok()) << c.name << ": " << config.status().ToString();
    const auto model = DecoderModel::Random(*config, DataType::kFloat32, HostMemory());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    Gemm gemm = *Gemm::Create();
    const auto inner = MakeCpuDispatch(gemm), reference = MakeReferenceDispatch();
    GuardedMemory memory;
    Guarded dispatch(*inner, memory);
    const auto bytes = [&] {
      std::size_t sum = 0;
      for (const auto& piece : memory.pieces()) sum += piece.bytes;
      return sum;
    };
    auto session = Session::Create(*model, dispatch, options);
    auto expected = Session::Create(*model, *reference, options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    const std::size_t cache = *CacheBytes(*config, options);
    EXPECT_EQ(session->cache_bytes(), static_cast<double>(cache)) << c.name;
    EXPECT_NEAR(static_cast<double>(cache), static_cast<double>(c.cache_floats * sizeof(float)),
                8 * 256)
        << c.name;
    EXPECT_GE(bytes(), cache) << c.name;
    EXPECT_LE(bytes(), cache + (std::size_t{1} << 17)) << c.name;

    const int sequence = *session->AddSequence(), other = *expected->AddSequence();
    ASSERT_TRUE(session->Prefill(sequence, prompt.first(kStep)).ok());
    const std::size_t after_a_step = bytes();
    constexpr int kWhole = (kContext - kLast) / kStep * kStep;
    ASSERT_TRUE(session->Prefill(sequence, prompt.subspan(kStep, kWhole - kStep)).ok());
    EXPECT_EQ(bytes(), after_a_step) << c.name;
    ASSERT_TRUE(session->Prefill(sequence, prompt.subspan(kWhole, kContext - kLast - kWhole)).ok());
    expected->SetHook([&](KernelDispatch& of, const NodeLaunch& launch) {
      const auto& nodes = launch.graph->nodes();
      const bool last = launch.node().op == TensorOp::kAttention &&
                        std::none_of(nodes.begin() + launch.id + 1, nodes.end(),
                                     [](const auto& n) { return n.op == TensorOp::kAttention; });
      if (!last) return of.launch(launch);
      std::memset(FromDevicePtr<void>(launch.output), 0,
                  static_cast<std::size_t>(BytesOf(launch.node())));
      return Status();
    });
    ASSERT_TRUE(expected->Prefill(other, prompt.first(kContext - kLast)).ok());
    expected->SetHook(nullptr);
    const auto found = session->Prefill(sequence, prompt.last(kLast), {.all_logits = true});
    const auto right = expected->Prefill(other, prompt.last(kLast), {.all_logits = true});
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    ASSERT_TRUE(right.ok()) << right.status().ToString();
    ASSERT_EQ(found->logits.size(), std::size_t{64} * kLast);
    EXPECT_LE(RelativeL2(found->logits.data(), right->logits.data(), found->logits.size()), 1e-5)
        << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecoderMemory,
                         testing::Values(Case{"llama-biases-llama3-tied", false},
                                         Case{"mistral-window", false},
                                         Case{"mixtral-shards", false}, Case{"qwen3-yarn", false},
                                         Case{"qwen3-moe-fp8", false}, Case{"qwen3-moe-fp8", true}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name + (info.param.reference ? "_reference" : "_cpu");
                         });

}  // namespace
}  // namespace culet
