// Models, sessions and sampling of the C interface.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/text.h"
#include "capi/versioned.h"
#include "culet/culet.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/sampling.h"

using culet::Session;
using culet::Status;
using culet::StatusCode;
using culet::capi::Guarded;
using culet::capi::Null;
using culet::capi::Read;
using culet::capi::Write;

struct culet_session {
  std::shared_ptr<const culet::capi::LoadedModel> loaded;
  std::unique_ptr<culet::KernelDispatch> dispatch;
  std::unique_ptr<Session> session;
  std::recursive_mutex mutex;  // the gate may ask for a sequence's length within a step
  bool stepping = false;
};

namespace culet::capi {
namespace {

static_assert(static_cast<int>(DispatchPolicy::kDefault) == CULET_POLICY_DEFAULT);
static_assert(static_cast<int>(DispatchPolicy::kMeasure) == CULET_POLICY_MEASURE);
static_assert(static_cast<int>(DispatchPolicy::kReuse) == CULET_POLICY_REUSE);

static_assert(static_cast<int>(DecodeEnd::kSteps) == CULET_DECODE_STEPS);
static_assert(static_cast<int>(DecodeEnd::kEndToken) == CULET_DECODE_END_TOKEN);
static_assert(static_cast<int>(DecodeEnd::kStopped) == CULET_DECODE_STOPPED);
static_assert(static_cast<int>(DecodeEnd::kNoRoom) == CULET_DECODE_NO_ROOM);

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// The kernels of the engine's device.
Result<std::unique_ptr<KernelDispatch>> DispatchOf(Gemm& gemm, DispatchPolicy policy,
                                                   Determinism determinism) {
  if (gemm.device().arch != 0) {
    return MakeCudaDispatch(gemm, {.policy = policy, .determinism = determinism});
  }
  return MakeCpuDispatch(gemm, {.policy = policy, .determinism = determinism});
}

// This process's part of it.
Result<DecoderModel> OpenModel(const TeamModel& wanted, int rank, int ranks, DeviceMemory& memory) {
  LoadOptions load;
  load.rank = rank;
  load.ranks = ranks;
  if (wanted.random == DataType::kNull) return DecoderModel::Load(wanted.path, memory, load);
  const auto config = ReadDecoderConfig(wanted.path);
  if (!config.ok()) return config.status();
  return DecoderModel::Random(*config, wanted.random, memory, wanted.seed, load);
}

// The GPU's number of the engine must be that which the ranks expect.
Status CheckPlace(const Gemm& gemm, const TeamModel& model, const RankTeam& team) {
  const int ordinal = gemm.device().ordinal, local = team.ranks().options().local_rank;
  if (ordinal < 0 || ordinal == local) return {};
  return Invalid(
      fmt::format("the engine is of cuda:{}, and this is rank {} of the host; use an "
                  "engine of {}",
                  ordinal, local, DeviceOf(model, team.ranks())));
}

Result<std::unique_ptr<RankTeam>> TeamOf(const culet_model_options& options) {
  if (options.ranks < 0) {
    return Invalid(fmt::format("options.ranks is {}; give 1 or more", options.ranks));
  }
  if (options.ranks <= 1) return std::unique_ptr<RankTeam>();
  if (RankTeam::IsLaunched()) return RankTeam::Join(options.ranks);
  const char* const program = options.rank_program;
  return RankTeam::Start(options.ranks, {program != nullptr ? program : "culet", "rank"});
}

Result<LoadedModel> LoadModel(culet_engine& engine, const char* path,
                              const culet_model_options& options) {
  TeamModel wanted;
  wanted.path = path;
  wanted.seed = options.seed;
  wanted.device = engine.gemm.device().ordinal >= 0 ? "cuda" : "cpu";
  if (engine.file) wanted.cache = engine.file->path();
  if (options.random_weights != 0) {
    CULET_RETURN_IF_ERROR(ToEnum("options.random_weights", options.random_weights, wanted.random));
  }
  if (options.exchange != 0) {
    CULET_RETURN_IF_ERROR(ToEnum("options.exchange", options.exchange, wanted.exchange));
  }
  if (wanted.exchange != DataType::kFloat32 && options.ranks <= 1) {
    return Invalid("options.exchange is of several ranks, and options.ranks is 1; leave it 0");
  }
  auto home = DispatchOf(engine.gemm, {}, {});
  if (!home.ok()) return home.status();
  auto team = TeamOf(options);
  if (!team.ok()) return team.status();
  std::optional<DecoderModel> model;
  const auto open = [&]() -> Status {
    if (*team != nullptr) CULET_RETURN_IF_ERROR(CheckPlace(engine.gemm, wanted, **team));
    const int rank = *team != nullptr ? (*team)->ranks().rank() : 0;
    auto opened = OpenModel(wanted, rank, std::max(options.ranks, 1), (*home)->memory());
    if (opened.ok()) model.emplace(*std::move(opened));
    return opened.status();
  };
  CULET_RETURN_IF_ERROR(*team != nullptr ? (*team)->Open(wanted, open) : open());
  auto turn = *team != nullptr ? std::make_unique<std::recursive_mutex>() : nullptr;
  return LoadedModel{*std::move(team), std::move(turn), *std::move(home), *std::move(model)};
}

Result<SessionOptions> ToOptions(const culet_session_options& given) {
  SessionOptions options;
  const auto set = [](std::int32_t value, int& option) {
    if (value != 0) option = value;
  };
  set(given.max_sequences, options.max_sequences);
  set(given.max_context, options.max_context);
  set(given.max_step_tokens, options.max_step_tokens);
  set(given.block_size, options.block_size);
  set(given.cache_blocks, options.cache_blocks);
  if (given.cache_type != 0) {
    CULET_RETURN_IF_ERROR(ToEnum("options.cache_type", given.cache_type, options.cache_type));
  }
  options.stream = static_cast<cudaStream_t>(given.stream);
  return options;
}

Result<std::unique_ptr<KernelDispatch>> MakeDispatch(Gemm& gemm,
                                                     const culet_session_options& given) {
  DispatchPolicy policy{};
  Determinism determinism{};
  CULET_RETURN_IF_ERROR(ToEnum("options.policy", given.policy, policy));
  CULET_RETURN_IF_ERROR(ToEnum("options.determinism", given.determinism, determinism));
  if (policy > DispatchPolicy::kReuse) {
    return Invalid(fmt::format("options.policy is {}; use CULET_POLICY_*", given.policy));
  }
  if (determinism > Determinism::kBatchInvariant) {
    return Invalid(
        fmt::format("options.determinism is {}; use CULET_DETERMINISM_*", given.determinism));
  }
  if (given.dispatch == CULET_DISPATCH_KERNELS) return DispatchOf(gemm, policy, determinism);
  if (given.dispatch != CULET_DISPATCH_REFERENCE) {
    return Invalid(fmt::format("options.dispatch is {}; use CULET_DISPATCH_*", given.dispatch));
  }
  if (gemm.device().arch != 0) {
    return Invalid(
        fmt::format("options.dispatch is CULET_DISPATCH_REFERENCE, which computes on the CPU, and "
                    "the engine is of {}; use an engine of \"cpu\"",
                    gemm.device().name));
  }
  return MakeReferenceDispatch();
}

// Null is greedy.
Result<SamplingOptions> ToSampling(const culet_sampling* given) {
  culet_sampling read{};
  if (given != nullptr) CULET_RETURN_IF_ERROR(Read("sampling", given, read));
  SamplingOptions options;
  options.temperature = read.temperature;
  options.top_k = read.top_k;
  if (read.top_p != 0) options.top_p = read.top_p;
  options.min_p = read.min_p;
  options.seed = read.seed;
  return options;
}

// Ends a step when the caller says so, by its flag or by its gate.
NodeGate MakeGate(const culet_session_options& given) {
  if (given.stop == nullptr && given.gate == nullptr) return nullptr;
  return [stop = given.stop, gate = given.gate, context = given.gate_context]() -> Status {
    // Another thread or a signal handler writes it.
    if (stop != nullptr && __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0) {
      return Status(StatusCode::kFailedPrecondition, "the step was stopped");
    }
    if (gate != nullptr && gate(context) != 0) {
      return Status(StatusCode::kFailedPrecondition, "the session's gate ended the step");
    }
    return {};
  };
}

// The batch's tokens, split among its sequences.
Result<std::vector<SequenceTokens>> ToBatch(const culet_batch* given) {
  culet_batch batch;
  CULET_RETURN_IF_ERROR(Read("batch", given, batch));
  CULET_RETURN_IF_ERROR(CheckReserved("batch", batch.reserved == 0));
  if (batch.count < 1) {
    return Invalid(fmt::format("batch.count is {}; give at least one sequence", batch.count));
  }
  if (batch.sequences == nullptr) return Null("batch.sequences");
  if (batch.tokens == nullptr) return Null("batch.tokens");
  std::vector<SequenceTokens> parts;
  const std::int32_t* tokens = batch.tokens;
  for (std::int32_t i = 0; i < batch.count; ++i) {
    const std::int32_t length = batch.lengths != nullptr ? batch.lengths[i] : 1;
    if (length < 0)
      return Invalid(fmt::format("batch.lengths[{}] is {}; give 1 or more", i, length));
    parts.push_back({batch.sequences[i], {tokens, static_cast<std::size_t>(length)}});
    tokens += length;
  }
  return parts;
}

void Deliver(const StepResult& result, std::span<const SequenceTokens> batch, std::size_t vocab,
             const culet_outputs& to) {
  if (to.next != nullptr) std::ranges::copy(result.next, to.next);
  if (to.all_logits != nullptr) std::ranges::copy(result.logits, to.all_logits);
  if (to.hidden != nullptr) std::ranges::copy(result.hidden, to.hidden);
  if (to.logits == nullptr) return;
  if (to.all_logits == nullptr) {
    std::ranges::copy(result.logits, to.logits);
    return;
  }
  const float* rows = result.logits.data();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    rows += batch[i].tokens.size() * vocab;
    std::copy_n(rows - vocab, vocab, to.logits + i * vocab);
  }
}

// Marks a session as busy as long as it lives.
class Stepping {
 public:
  explicit Stepping(bool& flag) : flag_(flag) { flag_ = true; }
  ~Stepping() { flag_ = false; }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

 private:
  bool& flag_;
};

// Holds up other sessions of the model's ranks.
std::unique_lock<std::recursive_mutex> TurnOf(const LoadedModel& loaded) {
  return loaded.turn != nullptr ? std::unique_lock(*loaded.turn)
                                : std::unique_lock<std::recursive_mutex>();
}

Result<Session> CreateSession(culet_session& made, std::unique_ptr<KernelDispatch> own,
                              const culet_session_options& given, const SessionOptions& options) {
  RankTeam* const team = made.loaded->team.get();
  made.dispatch = std::move(own);
  if (team == nullptr) return Session::Create(made.loaded->model, *made.dispatch, options);
  TeamSession wanted;
  wanted.options = options;
  wanted.reference = given.dispatch == CULET_DISPATCH_REFERENCE;
  wanted.policy = static_cast<DispatchPolicy>(given.policy);
  wanted.determinism = static_cast<Determinism>(given.determinism);
  return team->CreateSession(made.loaded->model, made.dispatch, wanted);
}

// Runs `body` on the session while no other thread uses it.
template <class Body>
culet_status WithSession(culet_session* session, Body&& body) noexcept {
  return Guarded([&]() -> Status {
    if (session == nullptr) return Null("session");
    const std::lock_guard lock(session->mutex);
    const auto turn = TurnOf(*session->loaded);
    if (session->stepping) {
      return Status(
          StatusCode::kFailedPrecondition,
          "the session's gate called the session; it may ask culet_session_sequence alone");
    }
    return body(*session->session);
  });
}

using Run = Result<StepResult> (Session::*)(std::span<const SequenceTokens>, const StepOutputs&);

culet_status RunBatch(culet_session* session, const culet_batch* batch,
                      const culet_outputs* outputs, Run run) noexcept {
  return WithSession(session, [&](Session& of) -> Status {
    culet_outputs to{};
    if (outputs != nullptr) CULET_RETURN_IF_ERROR(Read("outputs", outputs, to));
    const auto parts = ToBatch(batch);
    if (!parts.ok()) return parts.status();
    const Stepping stepping(session->stepping);
    const auto result = (of.*run)(*parts, {.logits = to.logits != nullptr,
                                           .all_logits = to.all_logits != nullptr,
                                           .hidden = to.hidden != nullptr});
    if (!result.ok()) return result.status();
    Deliver(*result, *parts, static_cast<std::size_t>(session->loaded->model.config().vocab), to);
    return {};
  });
}

}  // namespace
}  // namespace culet::capi

culet_status culet_model_load(culet_engine* engine, const char* path,
                              const culet_model_options* options, culet_model** model) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (path == nullptr) return Null("path");
    if (model == nullptr) return Null("model");
    culet_model_options read{};
    if (options != nullptr) CULET_RETURN_IF_ERROR(Read("options", options, read));
    CULET_RETURN_IF_ERROR(culet::capi::CheckReserved("options", read.reserved == 0));
    auto loaded = culet::capi::LoadModel(*engine, path, read);
    if (!loaded.ok()) return loaded.status();
    *model = new culet_model{engine,
                             std::make_shared<const culet::capi::LoadedModel>(*std::move(loaded))};
    return {};
  });
}

void culet_model_destroy(culet_model* model) { delete model; }

culet_status culet_model_get_info(const culet_model* model, culet_model_info* info) {
  return Guarded([&]() -> Status {
    if (model == nullptr) return Null("model");
    const culet::DecoderConfig& config = model->loaded->model.config();
    culet_model_info out{};
    culet::capi::CopyText(config.architecture, out.architecture);
    culet::capi::CopyText(config.model_type, out.model_type);
    out.vocab = config.vocab;
    out.hidden = config.hidden;
    out.layers = config.layers;
    out.heads = config.heads;
    out.kv_heads = config.kv_heads;
    out.head_dim = config.head_dim;
    out.max_position = config.max_position;
    out.end_tokens = static_cast<std::int32_t>(config.eos_ids.size());
    out.weight_bytes = static_cast<std::uint64_t>(model->loaded->model.weight_bytes());
    out.bytes_a_token = static_cast<std::uint64_t>(model->loaded->model.bytes_a_token());
    return Write("info", out, info);
  });
}

culet_status culet_model_end_tokens(const culet_model* model, int32_t* tokens, int32_t capacity,
                                    int32_t* count) {
  return Guarded([&]() -> Status {
    if (model == nullptr) return Null("model");
    if (tokens == nullptr && capacity != 0) return Null("tokens");
    if (capacity < 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("capacity is {}; give how many `tokens` holds", capacity));
    }
    const std::vector<int>& ends = model->loaded->model.config().eos_ids;
    std::copy_n(ends.begin(), std::min(ends.size(), static_cast<std::size_t>(capacity)), tokens);
    if (count != nullptr) *count = static_cast<std::int32_t>(ends.size());
    return {};
  });
}

culet_status culet_model_warnings(const culet_model* model, char* text, size_t capacity,
                                  size_t* needed) {
  return Guarded([&]() -> Status {
    if (model == nullptr) return Null("model");
    std::string lines;
    for (const std::string& sentence : model->loaded->model.config().warnings) {
      lines += sentence + '\n';
    }
    return culet::capi::WriteText(lines, text, capacity, needed);
  });
}

culet_status culet_session_create(const culet_model* model, const culet_session_options* options,
                                  culet_session** session) {
  return Guarded([&]() -> Status {
    if (model == nullptr) return Null("model");
    if (session == nullptr) return Null("session");
    culet_session_options read{};
    if (options != nullptr) CULET_RETURN_IF_ERROR(Read("options", options, read));
    CULET_RETURN_IF_ERROR(culet::capi::CheckReserved("options", read.reserved == 0));
    const auto wanted = culet::capi::ToOptions(read);
    if (!wanted.ok()) return wanted.status();
    auto made = std::make_unique<culet_session>();
    made->loaded = model->loaded;
    const auto turn = culet::capi::TurnOf(*made->loaded);
    auto dispatch = culet::capi::MakeDispatch(model->engine->gemm, read);
    if (!dispatch.ok()) return dispatch.status();
    auto inner = culet::capi::CreateSession(*made, *std::move(dispatch), read, *wanted);
    if (!inner.ok()) return inner.status();
    made->session = std::make_unique<Session>(*std::move(inner));
    made->session->SetGate(culet::capi::MakeGate(read));
    *session = made.release();
    return {};
  });
}

void culet_session_destroy(culet_session* session) {
  if (session == nullptr) return;
  const std::shared_ptr<const culet::capi::LoadedModel> loaded = session->loaded;
  const auto turn = culet::capi::TurnOf(*loaded);
  delete session;
}

culet_status culet_session_plan(culet_session* session) {
  return culet::capi::WithSession(session, [](Session& of) { return of.Prepare(); });
}

culet_status culet_session_get_info(culet_session* session, culet_session_info* info) {
  return culet::capi::WithSession(session, [&](Session& of) -> Status {
    const culet::SessionOptions& options = of.options();
    culet_session_info out{};
    out.max_sequences = options.max_sequences;
    out.max_context = options.max_context;
    out.max_step_tokens = options.max_step_tokens;
    out.block_size = options.block_size;
    out.cache_blocks = options.cache_blocks;
    out.cache_type = static_cast<std::int32_t>(options.cache_type);
    out.cache_bytes = static_cast<std::uint64_t>(of.cache_bytes());
    if (const culet::GraphExecutor* executor = of.last_executor(); executor != nullptr) {
      out.scratch_bytes =
          static_cast<std::uint64_t>(executor->plan().arena_bytes) + executor->workspace_bytes();
    }
    return Write("info", out, info);
  });
}

culet_status culet_session_add(culet_session* session, int32_t* sequence) {
  return culet::capi::WithSession(session, [&](Session& of) -> Status {
    if (sequence == nullptr) return Null("sequence");
    const auto added = of.AddSequence();
    if (!added.ok()) return added.status();
    *sequence = *added;
    return {};
  });
}

culet_status culet_session_remove(culet_session* session, int32_t sequence) {
  return culet::capi::WithSession(session,
                                  [&](Session& of) { return of.RemoveSequence(sequence); });
}

culet_status culet_session_truncate(culet_session* session, int32_t sequence, int32_t length) {
  return culet::capi::WithSession(session,
                                  [&](Session& of) { return of.Truncate(sequence, length); });
}

culet_status culet_session_sampling(culet_session* session, int32_t sequence,
                                    const culet_sampling* sampling) {
  return culet::capi::WithSession(session, [&](Session& of) -> Status {
    const auto options = culet::capi::ToSampling(sampling);
    if (!options.ok()) return options.status();
    return of.SetSampling(sequence, *options);
  });
}

culet_status culet_session_sequence(culet_session* session, int32_t sequence, int32_t* length,
                                    int32_t* left) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return Null("session");
    const std::lock_guard lock(session->mutex);  // the gate's own thread has it already
    const auto now = session->session->LengthOf(sequence);
    if (!now.ok()) return now.status();
    const auto room = session->session->RoomOf(sequence);
    if (!room.ok()) return room.status();
    if (length != nullptr) *length = *now;
    if (left != nullptr) *left = *room;
    return {};
  });
}

culet_status culet_session_step(culet_session* session, const culet_batch* batch,
                                const culet_outputs* outputs) {
  return culet::capi::RunBatch(session, batch, outputs, &Session::Step);
}

culet_status culet_session_prefill(culet_session* session, const culet_batch* batch,
                                   const culet_outputs* outputs) {
  return culet::capi::RunBatch(session, batch, outputs, &Session::Prefill);
}

culet_status culet_session_decode(culet_session* session, const culet_batch* batch,
                                  const culet_decode_options* options, int32_t* tokens,
                                  int32_t* made, int32_t* ends) {
  return culet::capi::WithSession(session, [&](Session& of) -> Status {
    culet_decode_options read{};
    CULET_RETURN_IF_ERROR(Read("options", options, read));
    if (read.end_token_count < 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("options.end_token_count is {}; give how many there are",
                                read.end_token_count));
    }
    if (read.end_token_count > 0 && read.end_tokens == nullptr) return Null("options.end_tokens");
    const auto parts = culet::capi::ToBatch(batch);
    if (!parts.ok()) return parts.status();
    culet::DecodeOptions wanted;
    wanted.steps = read.steps;
    wanted.end_tokens.assign(read.end_tokens, read.end_tokens + read.end_token_count);
    if (read.on_token != nullptr) {
      wanted.on_token = [&read](std::size_t part, std::int32_t token) {
        return read.on_token(read.context, static_cast<std::int32_t>(part), token) == 0;
      };
    }
    const culet::capi::Stepping stepping(session->stepping);
    const auto decoded = of.Decode(*parts, wanted);
    if (!decoded.ok()) return decoded.status();
    for (std::size_t i = 0; i < decoded->size(); ++i) {
      const culet::DecodedTokens& one = (*decoded)[i];
      if (tokens != nullptr) {
        std::ranges::copy(one.tokens, tokens + i * static_cast<std::size_t>(wanted.steps));
      }
      if (made != nullptr) made[i] = static_cast<std::int32_t>(one.tokens.size());
      if (ends != nullptr) ends[i] = static_cast<std::int32_t>(one.end);
    }
    return {};
  });
}

culet_status culet_sample(const float* logits, int32_t count, const culet_sampling* sampling,
                          uint64_t* state, int32_t* token) {
  return Guarded([&]() -> Status {
    if (logits == nullptr) return Null("logits");
    if (token == nullptr) return Null("token");
    auto options = culet::capi::ToSampling(sampling);
    if (!options.ok()) return options.status();
    if (options->seed != 0) {
      return culet::capi::Invalid(fmt::format(
          "sampling.seed is {}; culet_sample draws by `state`, leave it 0", options->seed));
    }
    const bool draws = options->temperature != 0;
    if (state == nullptr && draws) return Null("state");
    if (draws) options->seed = *state;
    const std::size_t vocab = count > 0 ? static_cast<std::size_t>(count) : 0;
    const auto drawn = culet::SampleToken({logits, vocab}, *options, 0);
    if (!drawn.ok()) return drawn.status();
    // Seeds beside each other lead to no state of one another for 2^32 draws.
    if (draws) *state += 0x9e3779b97f4a7c15;
    *token = *drawn;
    return {};
  });
}
