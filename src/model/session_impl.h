// The members of a Session.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "culet/decoder.h"
#include "model/kv_cache.h"
#include "model/sampling_rows.h"
#include "model/session_calls.h"
#include "model/step_inputs.h"

namespace culet {

struct BatchKey {
  StepShape shape;
  bool hidden = false;
  bool advance = false;    ///< ends with an Advance
  bool sample = false;     ///< draws its tokens
  bool whole = true;       ///< as DecoderBatch::whole_logits; where there are no ranks
  bool long_rope = false;  ///< as DecoderBatch::long_rope
  bool all_logits() const { return shape.logit_rows == 0; }
  friend bool operator==(const BatchKey&, const BatchKey&) = default;
};

struct StepGraph {
  BatchKey key;
  GraphExecutor executor;
  int logits, argmax;
  std::vector<int> hidden;
};

/// The tokens of sequences whose cache may have to be computed again. With longrope all positions
/// of a sequence turn by other frequencies beyond the original context; a state of linear attention
/// is of all tokens that were read, so it is lost with a step that fails and with a truncation. In
/// a ring later positions have taken the place of those that a truncated sequence sees again.
struct KeptTokens {
  enum class State : std::uint8_t { kShort = 0, kLong, kUnknown };
  double original = 0;  ///< positions until frequencies change; 0: no tokens are kept
  bool linear = false;  ///< there are states
  int ring = 0;         ///< positions of a ring; 0: there are none
  int reach = 0;        ///< the most positions that a query sees in one
  struct Sequence {
    std::vector<std::int32_t> tokens;  ///< those that the cache is of
    State state = State::kShort;       ///< of the cache
    int written = 0;                   ///< positions that the cache has had at once
  };
  std::vector<Sequence> sequences;  ///< by their number

  bool is_used() const { return original > 0; }
  State StateFor(int length) const { return length > original ? State::kLong : State::kShort; }
  void Remember(int sequence, int before, std::span<const std::int32_t> tokens);
  /// Whether a sequence of `now` positions loses what it needs when it is cut to `length`.
  bool Loses(int sequence, int now, int length) const;
  /// The cache of these sequences is no longer that of their tokens.
  void Forget(std::span<const SequenceTokens> batch);
  void Forget(int sequence);
};

struct Session::Impl {
  Impl(const DecoderModel& m, KernelDispatch& d, const SessionOptions& o, int blocks)
      : model(m),
        dispatch(d),
        options(o),
        tables(o.max_sequences, blocks, o.block_size, o.max_context) {}
  /// Others that follow learn of the end by a call of no bytes.
  ~Impl() {
    if (tell) static_cast<void>(tell({}));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const DecoderModel& model;
  KernelDispatch& dispatch;
  SessionOptions options;
  BlockTables tables;
  DeviceBuffer cache_memory;
  CacheLayout cache;
  bool buckets = false;         // steps are padded
  bool never_advances = false;  // the dispatch has no Advance
  StepInputs inputs;
  SamplingRows sampling;
  KeptTokens kept;
  std::vector<std::unique_ptr<DeviceEvent>> decoded;  // behind the steps that Decode launched
  std::list<StepGraph> graphs;                        // the one used last comes first
  NodeHook hook;
  NodeGate gate;
  CallSink tell;  // of a session that leads those of other ranks

  Status Tell(const CallWriter& call) const;
  Status TellStep(SessionCall call, std::span<const SequenceTokens> batch,
                  const StepOutputs& outputs) const;
  Status TellDecode(std::span<const SequenceTokens> batch, const DecodeOptions& options) const;
  DecodeOptions ToldOptions(const DecodeOptions& options) const;
  NodeGate ToldGate(NodeGate own) const;

  int TableBlocks() const {
    return (options.max_context + options.block_size - 1) / options.block_size;
  }
  Status AllocateCache();
  Status CheckBatch(std::span<const SequenceTokens> batch, std::size_t most_tokens) const;
  Status Extend(std::span<const SequenceTokens> batch);
  /// `positions`: those of the longest sequence after the graph's last step.
  BatchKey DecodeKey(int sequences, int positions, bool sample) const;
  /// Steps that a segment of decoding may have, of `steps`, before frequencies change; 0: now.
  int StepsWithoutChange(std::span<const int> of, int steps) const;
  BatchKey KeyFor(std::span<const SequenceTokens> batch, const StepOutputs& outputs) const;
  Result<StepGraph*> GraphFor(const BatchKey& key);
  Result<StepResult> Run(std::span<const SequenceTokens> batch, const BatchKey& key,
                         const StepOutputs& outputs);
  Result<StepResult> Step(std::span<const SequenceTokens> batch, const StepOutputs& outputs);
  /// The same where all sequences turn alike.
  Result<StepResult> StepAlike(std::span<const SequenceTokens> batch, const StepOutputs& outputs);
  /// The same for a model whose tokens are kept (session_kept_tokens.cc). `ends`: lengths of the
  /// sequences when the prompts that this step is a piece of are read; empty: after this step.
  Result<StepResult> StepTurning(std::span<const SequenceTokens> batch, const StepOutputs& outputs,
                                 std::span<const int> ends);
  StepResult Merged(std::span<const SequenceTokens> batch, const StepOutputs& outputs,
                    const std::vector<SequenceTokens> (&groups)[2],
                    const StepResult (&results)[2]) const;
  Status ComputeAgain(int sequence, KeptTokens::State state);
  Status Launch(GraphExecutor& executor) const;
  Status Read(StepGraph& step, std::span<const SequenceTokens> batch, const StepOutputs& outputs,
              StepResult& result);
  Status ReadLog(StepGraph& step, std::span<const SequenceTokens> batch, StepResult& result);
  Status CheckLogits(StepGraph& step, std::span<const SequenceTokens> batch,
                     const std::vector<std::int32_t>& best);
};

}  // namespace culet
