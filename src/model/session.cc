// Session: sequences, their cache, and the graphs that serve their steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/caught.h"
#include "culet/decoder.h"
#include "model/cache_scales.h"
#include "model/nan_search.h"
#include "model/session_impl.h"
#include "model/session_sizes.h"
#include "model/step_buckets.h"

namespace culet {
namespace {

// Decoding uses one graph for each batch size, a prompt one for its pieces and one for the rest.
// With padding, steps of all sizes share a few graphs; more are rarely in use at once.
constexpr std::size_t kKeptGraphs = 8, kKeptPadded = 16;

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// Sequences that became longer for a step are as long as before when it ends without Keep: it
// failed, or memory ran out.
class Growth {
 public:
  // taken: how many tokens of each part were added; null for all of them.
  Growth(BlockTables& tables, std::span<const SequenceTokens> batch,
         const std::size_t* taken = nullptr)
      : tables_(tables), batch_(batch), taken_(taken) {}
  ~Growth() {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const std::size_t tokens = taken_ != nullptr ? taken_[i] : batch_[i].tokens.size();
      tables_.Shrink(batch_[i].sequence, static_cast<int>(tokens));
    }
  }
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;
  void Keep() { batch_ = {}; }

 private:
  BlockTables& tables_;
  std::span<const SequenceTokens> batch_;
  const std::size_t* taken_;
};

}  // namespace

Status Session::Impl::AllocateCache() {
  const DecoderConfig& config = model.config();
  const auto bytes = CacheBytes(config, options);
  if (!bytes) return bytes.status();
  auto memory = DeviceBuffer::Create(dispatch.memory(), *bytes);
  if (!memory) return memory.status();
  cache_memory = *std::move(memory);
  cache.sequences = options.max_sequences;
  DevicePtr next = cache_memory.get();
  const auto take = [&](std::size_t size) { return std::exchange(next, next + size); };
  const auto layers = static_cast<std::size_t>(config.layers);
  cache.ring_blocks = RingBlocks(config, options);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const bool linear = config.linear_layers[layer];
    const std::size_t matrix = CacheMatrixBytes(config, options, layer);
    cache.keys.push_back(linear ? 0 : take(matrix));
    if (CacheMatrices(config) == 2) cache.values.push_back(linear ? 0 : take(matrix));
    cache.conv_states.push_back(linear ? take(ConvStateBytes(config, options)) : 0);
    cache.delta_states.push_back(linear ? take(DeltaStateBytes(config, options)) : 0);
  }
  const std::size_t of_scales = CacheScaleBytes(config, options);
  if (of_scales == 0) return {};
  for (std::size_t layer = 0; layer < layers; ++layer) {
    cache.key_scales.push_back(0);
    cache.value_scales.push_back(0);
    if (config.linear_layers[layer]) continue;
    const auto found = ScalesOfLayer(config, model.weights().layers[layer], static_cast<int>(layer),
                                     dispatch.memory());
    if (!found) {
      return Status(found.status().code(),
                    fmt::format("layer {}: {}", layer, found.status().message()));
    }
    cache.key_scales.back() = take(of_scales);
    cache.value_scales.back() = take(of_scales);
    const std::size_t size = found->keys.size() * sizeof(float);
    CULET_RETURN_IF_ERROR(dispatch.memory().Upload(cache.key_scales.back(), found->keys.data(),
                                                   size, options.stream));
    CULET_RETURN_IF_ERROR(dispatch.memory().Upload(cache.value_scales.back(), found->values.data(),
                                                   size, options.stream));
  }
  return dispatch.memory().Synchronize(options.stream);
}

Status Session::Impl::CheckBatch(std::span<const SequenceTokens> batch,
                                 std::size_t most_tokens) const {
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    CULET_RETURN_IF_ERROR(tables.Check(batch[i].sequence));
    for (std::size_t j = 0; j < i; ++j) {
      if (batch[j].sequence == batch[i].sequence) {
        return Invalid(fmt::format("sequence {} is in the batch twice", batch[i].sequence));
      }
    }
    if (batch[i].tokens.empty()) {
      return Invalid(fmt::format("sequence {} gets no tokens; leave it out", batch[i].sequence));
    }
    for (const std::int32_t token : batch[i].tokens) {
      if (token < 0 || token >= model.config().vocab) {
        return Invalid(
            fmt::format("token {} is not in the vocabulary of {}", token, model.config().vocab));
      }
    }
    tokens += batch[i].tokens.size();
  }
  if (tokens == 0) return Invalid("the batch is empty; give tokens for a sequence");
  if (tokens > most_tokens) {
    return Invalid(
        fmt::format("the step has {} tokens, more than max_step_tokens {}; use Prefill, "
                    "or raise it",
                    tokens, options.max_step_tokens));
  }
  return {};
}

// All sequences become longer, or none.
Status Session::Impl::Extend(std::span<const SequenceTokens> batch) {
  for (const SequenceTokens& part : batch) {
    const Status status = tables.Reserve(part.sequence, static_cast<int>(part.tokens.size()));
    if (status.ok()) continue;
    for (const SequenceTokens& reserved : batch) tables.Shrink(reserved.sequence, 0);
    return status;
  }
  for (const SequenceTokens& part : batch) {  // their blocks are there
    CULET_RETURN_IF_ERROR(tables.Extend(part.sequence, static_cast<int>(part.tokens.size())));
  }
  return {};
}

BatchKey Session::Impl::DecodeKey(int sequences, int positions, bool sample) const {
  BatchKey key;
  key.sample = sample;
  key.whole = sample || !model.config().shard.is_part();
  key.long_rope = kept.is_used() && positions > kept.original;
  key.shape.sequences =
      buckets ? std::min(SequenceBucket(sequences), options.max_sequences) : sequences;
  key.shape.tokens = key.shape.logit_rows = key.shape.sequences;
  key.shape.table_blocks = TableBlocks();
  if (buckets) {
    const int bucket = ContextBucket(positions) / options.block_size + 1;
    key.shape.table_blocks = std::min(key.shape.table_blocks, bucket);
  }
  key.advance = !never_advances;
  return key;
}

BatchKey Session::Impl::KeyFor(std::span<const SequenceTokens> batch,
                               const StepOutputs& outputs) const {
  BatchKey key;
  StepShape& shape = key.shape;
  int longest = 0;
  for (const SequenceTokens& part : batch) {
    shape.tokens += static_cast<int>(part.tokens.size());
    longest = std::max(longest, tables.length(part.sequence));
  }
  shape.sequences = static_cast<int>(batch.size());
  shape.table_blocks = TableBlocks();
  shape.logit_rows = outputs.all_logits ? 0 : shape.sequences;
  key.hidden = outputs.hidden;
  key.long_rope =
      kept.is_used() && kept.sequences[static_cast<std::size_t>(batch.front().sequence)].state ==
                            KeptTokens::State::kLong;
  key.sample = !outputs.all_logits && sampling.AnyOf(batch);
  key.whole = outputs.logits || outputs.all_logits || key.sample || !model.config().shard.is_part();
  // Outputs that are returned whole have no padding rows.
  if (!buckets || outputs.all_logits || outputs.hidden) return key;
  if (shape.tokens == shape.sequences) {
    BatchKey decode = DecodeKey(shape.sequences, longest, key.sample);
    decode.long_rope = key.long_rope;
    decode.whole = key.whole;
    return decode;
  }
  shape.tokens = std::min(TokenBucket(shape.tokens), options.max_step_tokens);
  // One more sequence, to which padding rows belong.
  shape.sequences = std::min(SequenceBucket(shape.sequences + 1), options.max_sequences + 1);
  shape.logit_rows = shape.sequences;
  return key;
}

Result<StepGraph*> Session::Impl::GraphFor(const BatchKey& key) {
  const auto known = std::ranges::find(graphs, key, &StepGraph::key);
  if (known != graphs.end()) {
    graphs.splice(graphs.begin(), graphs, known);
    return &graphs.front();
  }
  const StepShape& shape = key.shape;
  DecoderBatch batch{shape.tokens,     shape.sequences, shape.table_blocks,
                     shape.logit_rows, key.hidden,      options.value_type};
  batch.log_rows = key.advance ? StepInputs::kLogRows : 0;
  batch.sample = key.sample;
  batch.whole_logits = key.whole;
  batch.long_rope = key.long_rope;
  DecoderInputs addresses = inputs.AddressesOf(shape);
  addresses.sampling = sampling.address();
  DecoderGraph built = BuildDecoderGraph(model.config(), model.weights(), addresses, cache, batch);
  if (key.advance) {
    const auto refusal = CaughtAs("supports", [&]() -> Status {
      const Feasibility ok = dispatch.supports(built.graph, built.advance);
      return ok.ok() ? Status() : Status(StatusCode::kUnsupported, ok.reason());
    });
    if (refusal.code() == StatusCode::kUnsupported) {
      never_advances = true;  // the host does it
      BatchKey without = key;
      without.advance = false;
      return GraphFor(without);
    }
    CULET_RETURN_IF_ERROR(refusal);
  }
  // Ranks fuse and launch what suits their parts, so only whole steps are gated there.
  const bool part = model.config().shard.is_part();
  auto executor = GraphExecutor::Create(std::move(built.graph), dispatch, part ? nullptr : gate,
                                        options.fusions);
  if (!executor) return executor.status();
  executor->SetRecording(options.record);
  if (graphs.size() >= (buckets ? kKeptPadded : kKeptGraphs)) graphs.pop_back();
  graphs.push_front(
      {key, *std::move(executor), built.logits, built.argmax, std::move(built.hidden)});
  return &graphs.front();
}

// ArgMax prefers NaN to any number, so checking one logit a row is enough.
Status Session::Impl::CheckLogits(StepGraph& step, std::span<const SequenceTokens> batch,
                                  const std::vector<std::int32_t>& best) {
  const std::int64_t vocab = model.config().vocab;
  std::size_t part = 0, rows_before = 0;
  for (std::size_t row = 0; row < best.size(); ++row) {
    if (row - rows_before == (step.key.all_logits() ? batch[part].tokens.size() : 1)) {
      ++part;
      rows_before = row;
    }
    const bool none = !step.key.whole && best[row] == -1;  // where a logit is NaN
    if (!none && (best[row] < 0 || best[row] >= vocab)) {
      return Status(StatusCode::kInternal,
                    fmt::format("the arg max of {} logits is {}", vocab, best[row]));
    }
    float logit = none ? std::numeric_limits<float>::quiet_NaN() : 0;
    if (step.key.whole) {
      const auto index = static_cast<std::int64_t>(row) * vocab + best[row];
      CULET_RETURN_IF_ERROR(dispatch.memory().Download(
          &logit,
          step.executor.address(step.logits) + static_cast<DevicePtr>(index) * sizeof(float),
          sizeof logit, options.stream));
    }
    if (std::isnan(logit)) {
      return NaNFrom(step.executor,
                     fmt::format("logits of sequence {} are NaN", batch[part].sequence),
                     options.stream);
    }
  }
  return {};
}

// What the Advance left: the tokens, and where a logit is NaN.
Status Session::Impl::ReadLog(StepGraph& step, std::span<const SequenceTokens> batch,
                              StepResult& result) {
  CULET_RETURN_IF_ERROR(dispatch.memory().Synchronize(options.stream));
  const auto log = inputs.Log(step.key.shape, options.stream);
  if (!log) return log.status();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::int32_t token = log->At(tables.length(batch[i].sequence) - 1, i);
    if (token < 0) {
      // It ended with the next step's inputs.
      CULET_RETURN_IF_ERROR(inputs.Write(batch, tables, step.key.shape, options.stream));
      return NaNFrom(step.executor, fmt::format("logits of sequence {} are NaN", batch[i].sequence),
                     options.stream);
    }
    result.next.push_back(token);
  }
  return {};
}

Status Session::Impl::Read(StepGraph& step, std::span<const SequenceTokens> batch,
                           const StepOutputs& outputs, StepResult& result) {
  DeviceMemory& memory = dispatch.memory();
  const ComputeGraph& graph = step.executor.graph();
  const auto download = [&](void* to, int id) {
    return memory.Download(to, step.executor.address(id),
                           static_cast<std::size_t>(BytesOf(graph.node(id))), options.stream);
  };
  if (step.key.advance) {
    CULET_RETURN_IF_ERROR(ReadLog(step, batch, result));
  } else {
    std::vector<std::int32_t> best(static_cast<std::size_t>(graph.node(step.argmax).shape.rows));
    CULET_RETURN_IF_ERROR(download(best.data(), step.argmax));
    if (!step.key.all_logits()) best.resize(batch.size());  // without the padding
    CULET_RETURN_IF_ERROR(CheckLogits(step, batch, best));
    std::size_t row = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      row += step.key.all_logits() ? batch[i].tokens.size() : 1;
      result.next.push_back(best[row - 1]);
    }
  }
  const auto elements = [&](int id) {
    const Shape shape = graph.node(id).shape;
    return static_cast<std::size_t>(shape.rows * shape.cols);
  };
  if (outputs.all_logits) {
    result.logits.resize(elements(step.logits));
    CULET_RETURN_IF_ERROR(download(result.logits.data(), step.logits));
  } else if (outputs.logits) {
    result.logits.resize(batch.size() *
                         static_cast<std::size_t>(graph.node(step.logits).shape.cols));
    CULET_RETURN_IF_ERROR(memory.Download(result.logits.data(), step.executor.address(step.logits),
                                          result.logits.size() * sizeof(float), options.stream));
  }
  // If all logits are copied to the host, tokens of the last rows are drawn there.
  if (step.key.all_logits() && sampling.AnyOf(batch)) {
    const auto vocab = static_cast<std::size_t>(graph.node(step.logits).shape.cols);
    std::span<const float> rows = result.logits;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      rows = rows.subspan((batch[i].tokens.size() - 1) * vocab);
      result.next[i] =
          sampling.Draw(batch[i].sequence, rows.first(vocab), tables.length(batch[i].sequence));
      rows = rows.subspan(vocab);
    }
  }
  for (const int id : step.hidden) {
    const std::size_t end = result.hidden.size();
    result.hidden.resize(end + elements(id));
    CULET_RETURN_IF_ERROR(download(result.hidden.data() + end, id));
  }
  return {};
}

Status Session::Impl::Launch(GraphExecutor& executor) const {
  if (model.config().shard.is_part()) {
    if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
    return hook ? executor.Launch(hook, options.stream) : executor.Launch(options.stream);
  }
  if (!hook) return executor.Launch(options.stream, gate);
  const NodeHook gated = [&](KernelDispatch& to, const NodeLaunch& launch) -> Status {
    if (gate) CULET_RETURN_IF_ERROR(CaughtAs("the gate", gate));
    return hook(to, launch);
  };
  return executor.Launch(gated, options.stream);
}

Result<StepResult> Session::Impl::Run(std::span<const SequenceTokens> batch, const BatchKey& key,
                                      const StepOutputs& outputs) {
  auto step = GraphFor(key);
  if (!step) return step.status();
  StepResult result;
  const Status status = [&]() -> Status {
    CULET_RETURN_IF_ERROR(inputs.Write(batch, tables, (*step)->key.shape, options.stream));
    if (key.sample) CULET_RETURN_IF_ERROR(sampling.Write(batch, options.stream));
    CULET_RETURN_IF_ERROR(Launch((*step)->executor));
    return Read(**step, batch, outputs, result);
  }();
  if (status.ok()) return result;
  // Nothing of it may be under way when the session is closed, the blocks are given back, or the
  // next step's inputs are written.
  static_cast<void>(dispatch.memory().Synchronize(options.stream));
  return status;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::Create(const DecoderModel& model, KernelDispatch& dispatch,
                                const SessionOptions& given) {
  SessionOptions options = given;
  const DecoderConfig& config = model.config();
  if (options.value_type == DataType::kNull) {
    const LayerWeights& first = model.weights().layers.front();
    const DataType weights = (first.linear.in.present() ? first.linear.in : first.q).type;
    CULET_RETURN_IF_ERROR(CaughtAs("preferred_values", [&]() -> Status {
      options.value_type = dispatch.preferred_values(weights);
      return {};
    }));
  }
  if (options.value_type != DataType::kFloat32 && options.value_type != DataType::kBfloat16) {
    return Invalid(
        fmt::format("value_type is {}; use float32 or bfloat16", ToString(options.value_type)));
  }
  if (options.max_step_tokens == 0) {
    CULET_RETURN_IF_ERROR(CaughtAs("preferred_step_tokens", [&]() -> Status {
      options.max_step_tokens = std::max(dispatch.preferred_step_tokens(), options.max_sequences);
      return {};
    }));
  }
  CULET_RETURN_IF_ERROR(CompleteSizes(config, options));
  auto impl = std::make_unique<Impl>(model, dispatch, options, options.cache_blocks);
  impl->cache.type = options.cache_type;
  impl->cache.blocks = options.cache_blocks;
  impl->cache.block_size = options.block_size;
  CULET_RETURN_IF_ERROR(impl->AllocateCache());
  KeptTokens& kept = impl->kept;
  kept.linear = config.linear.present();
  kept.ring = impl->cache.ring_blocks * options.block_size;
  kept.reach = RingReach(config);
  if (kept.linear || kept.ring > 0) kept.original = std::numeric_limits<int>::max();
  if (config.rope.scaling == RopeScaling::kLongRope) kept.original = config.rope.original_context;
  if (kept.is_used()) kept.sequences.resize(static_cast<std::size_t>(options.max_sequences));
  impl->buckets = options.padding == StepPadding::kBuckets ||
                  (options.padding == StepPadding::kDispatch && dispatch.prefers_buckets());
  const int most = options.max_sequences + 1;  // one more for padding, see KeyFor
  auto inputs = StepInputs::Create(dispatch.memory(),
                                   {options.max_step_tokens, most, impl->TableBlocks(), most},
                                   impl->cache.ring_blocks);
  if (!inputs) return inputs.status();
  impl->inputs = *std::move(inputs);
  auto sampling = SamplingRows::Create(dispatch.memory(), most);
  if (!sampling) return sampling.status();
  impl->sampling = *std::move(sampling);
  return Session(std::move(impl));
}

Result<int> Session::AddSequence() {
  CULET_RETURN_IF_ERROR(impl_->Tell(CallWriter(SessionCall::kAdd)));
  return impl_->tables.Add();
}
Status Session::RemoveSequence(int sequence) {
  CULET_RETURN_IF_ERROR(impl_->Tell(CallWriter(SessionCall::kRemove).Put(sequence)));
  CULET_RETURN_IF_ERROR(impl_->tables.Remove(sequence));
  impl_->sampling.Set(sequence, {});
  return {};
}

Status Session::SetSampling(int sequence, const SamplingOptions& options) {
  const SamplingOptions told = options.temperature == 0 ? SamplingOptions() : options;
  CULET_RETURN_IF_ERROR(impl_->Tell(CallWriter(SessionCall::kSetSampling).Put(sequence).Put(told)));
  CULET_RETURN_IF_ERROR(impl_->tables.Check(sequence));
  CULET_RETURN_IF_ERROR(CheckSampling(options));
  impl_->sampling.Set(sequence, options);
  return {};
}

Result<int> Session::LengthOf(int sequence) const {
  CULET_RETURN_IF_ERROR(impl_->tables.Check(sequence));
  return impl_->tables.length(sequence);
}

Result<int> Session::RoomOf(int sequence) const {
  CULET_RETURN_IF_ERROR(impl_->tables.Check(sequence));
  return impl_->tables.Room(sequence);
}

Status Session::Truncate(int sequence, int length) {
  CULET_RETURN_IF_ERROR(impl_->Tell(CallWriter(SessionCall::kTruncate).Put(sequence).Put(length)));
  CULET_RETURN_IF_ERROR(impl_->tables.Check(sequence));
  const int now = impl_->tables.length(sequence);
  if (length < 0 || length > now) {
    return Invalid(
        fmt::format("length is {}; sequence {} has {} positions", length, sequence, now));
  }
  impl_->tables.Shrink(sequence, now - length);
  if (impl_->kept.Loses(sequence, now, length)) impl_->kept.Forget(sequence);
  return {};
}

Result<StepResult> Session::Impl::Step(std::span<const SequenceTokens> batch,
                                       const StepOutputs& outputs) {
  CULET_RETURN_IF_ERROR(CheckBatch(batch, static_cast<std::size_t>(options.max_step_tokens)));
  return kept.is_used() ? StepTurning(batch, outputs, {}) : StepAlike(batch, outputs);
}

Result<StepResult> Session::Impl::StepAlike(std::span<const SequenceTokens> batch,
                                            const StepOutputs& outputs) {
  CULET_RETURN_IF_ERROR(Extend(batch));
  Growth growth(tables, batch);
  auto result = Run(batch, KeyFor(batch, outputs), outputs);
  if (result) growth.Keep();
  return result;
}

Result<StepResult> Session::Step(std::span<const SequenceTokens> batch,
                                 const StepOutputs& outputs) {
  CULET_RETURN_IF_ERROR(impl_->TellStep(SessionCall::kStep, batch, outputs));
  return impl_->Step(batch, outputs);
}

// The prompts are concatenated and cut into pieces, so that the outputs come in the order of a
// single step.
Result<StepResult> Session::Prefill(std::span<const SequenceTokens> batch,
                                    const StepOutputs& outputs) {
  CULET_RETURN_IF_ERROR(impl_->TellStep(SessionCall::kPrefill, batch, outputs));
  const auto most = static_cast<std::size_t>(impl_->options.max_step_tokens);
  std::size_t tokens = 0;
  for (const SequenceTokens& part : batch) tokens += part.tokens.size();
  CULET_RETURN_IF_ERROR(impl_->CheckBatch(batch, tokens));
  // Lack of room is reported before the first piece is computed.
  CULET_RETURN_IF_ERROR(impl_->Extend(batch));
  for (const SequenceTokens& part : batch) {
    impl_->tables.Shrink(part.sequence, static_cast<int>(part.tokens.size()));
  }
  const auto hidden = static_cast<std::size_t>(impl_->model.config().hidden);
  const auto vocab = static_cast<std::size_t>(impl_->model.config().vocab);
  const auto states = static_cast<std::size_t>(impl_->model.config().layers) + 1;
  StepResult all;
  if (outputs.hidden) all.hidden.resize(states * tokens * hidden);
  std::vector<std::size_t> done(batch.size(), 0);  // tokens of each part
  Growth growth(impl_->tables, batch, done.data());
  std::size_t first = 0;  // the first part that is not done
  for (std::size_t before = 0; before < tokens;) {
    std::vector<SequenceTokens> piece;
    std::size_t size = 0;
    for (std::size_t i = first; i < batch.size() && size < most; ++i) {
      const std::size_t more = std::min(most - size, batch[i].tokens.size() - done[i]);
      piece.push_back({batch[i].sequence, batch[i].tokens.subspan(done[i], more)});
      size += more;
    }
    const auto result = [&]() -> Result<StepResult> {
      if (!impl_->kept.is_used()) return impl_->Step(piece, outputs);
      std::vector<int> ends;
      for (std::size_t i = 0; i < piece.size(); ++i) {
        const std::size_t left = batch[first + i].tokens.size() - done[first + i];
        ends.push_back(impl_->tables.length(piece[i].sequence) + static_cast<int>(left));
      }
      return impl_->StepTurning(piece, outputs, ends);
    }();
    if (!result) {
      impl_->kept.Forget(batch);
      return result;
    }
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const std::size_t part = first + i;
      done[part] += piece[i].tokens.size();
      if (done[part] < batch[part].tokens.size()) continue;  // goes on in the next piece
      all.next.push_back(result->next[i]);
      if (!outputs.logits || outputs.all_logits) continue;
      const auto row = result->logits.begin() + static_cast<std::ptrdiff_t>(i * vocab);
      all.logits.insert(all.logits.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
    }
    while (first < batch.size() && done[first] == batch[first].tokens.size()) ++first;
    if (outputs.all_logits) {
      all.logits.insert(all.logits.end(), result->logits.begin(), result->logits.end());
    }
    for (std::size_t state = 0; outputs.hidden && state < states; ++state) {
      std::copy_n(
          result->hidden.begin() + static_cast<std::ptrdiff_t>(state * size * hidden),
          size * hidden,
          all.hidden.begin() + static_cast<std::ptrdiff_t>((state * tokens + before) * hidden));
    }
    before += size;
  }
  growth.Keep();
  return all;
}

Result<StepResult> Session::Prefill(int sequence, std::span<const std::int32_t> tokens,
                                    const StepOutputs& outputs) {
  const SequenceTokens part{sequence, tokens};
  return Prefill({&part, 1}, outputs);
}

Status Session::Prepare() {
  CULET_RETURN_IF_ERROR(impl_->Tell(CallWriter(SessionCall::kPrepare)));
  return impl_->GraphFor(impl_->DecodeKey(1, 1, false)).status();
}

// Others that are gone are missed in the next exchange.
void Session::SetHook(NodeHook hook) {
  static_cast<void>(impl_->Tell(CallWriter(SessionCall::kHook).Put(hook != nullptr)));
  impl_->hook = std::move(hook);
}
void Session::SetGate(NodeGate gate) {
  static_cast<void>(impl_->Tell(CallWriter(SessionCall::kGate).Put(gate != nullptr)));
  impl_->gate = impl_->ToldGate(std::move(gate));
}
const DecoderModel& Session::model() const noexcept { return impl_->model; }
const SessionOptions& Session::options() const noexcept { return impl_->options; }
double Session::cache_bytes() const noexcept {
  return static_cast<double>(impl_->cache_memory.bytes());
}
const GraphExecutor* Session::last_executor() const noexcept {
  return impl_->graphs.empty() ? nullptr : &impl_->graphs.front().executor;
}

}  // namespace culet
