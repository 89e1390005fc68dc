// The members of a Session.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "culet/decoder.h"
#include "model/kv_cache.h"
#include "model/sampling_rows.h"
#include "model/step_inputs.h"

namespace culet {

struct BatchKey {
  StepShape shape;
  bool hidden = false;
  bool advance = false;  ///< ends with an Advance
  bool sample = false;   ///< draws its tokens
  bool all_logits() const { return shape.logit_rows == 0; }
  friend bool operator==(const BatchKey&, const BatchKey&) = default;
};

struct StepGraph {
  BatchKey key;
  GraphExecutor executor;
  int logits, argmax;
  std::vector<int> hidden;
};

struct Session::Impl {
  Impl(const DecoderModel& m, KernelDispatch& d, const SessionOptions& o, int blocks)
      : model(m),
        dispatch(d),
        options(o),
        tables(o.max_sequences, blocks, o.block_size, o.max_context) {}

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
  std::vector<std::unique_ptr<DeviceEvent>> decoded;  // behind the steps that Decode launched
  std::list<StepGraph> graphs;                        // the one used last comes first
  NodeHook hook;
  NodeGate gate;

  int TableBlocks() const {
    return (options.max_context + options.block_size - 1) / options.block_size;
  }
  Status AllocateCache();
  Status CheckBatch(std::span<const SequenceTokens> batch, std::size_t most_tokens) const;
  Status Extend(std::span<const SequenceTokens> batch);
  /// `positions`: those of the longest sequence after the graph's last step.
  BatchKey DecodeKey(int sequences, int positions, bool sample) const;
  BatchKey KeyFor(std::span<const SequenceTokens> batch, const StepOutputs& outputs) const;
  Result<StepGraph*> GraphFor(const BatchKey& key);
  Result<StepResult> Run(std::span<const SequenceTokens> batch, const BatchKey& key,
                         const StepOutputs& outputs);
  Result<StepResult> Step(std::span<const SequenceTokens> batch, const StepOutputs& outputs);
  Status Launch(GraphExecutor& executor) const;
  Status Read(StepGraph& step, std::span<const SequenceTokens> batch, const StepOutputs& outputs,
              StepResult& result);
  Status ReadLog(StepGraph& step, std::span<const SequenceTokens> batch, StepResult& result);
  Status CheckLogits(StepGraph& step, std::span<const SequenceTokens> batch,
                     const std::vector<std::int32_t>& best);
};

}  // namespace culet
