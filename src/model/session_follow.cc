// Session::Follow: a session that makes the calls of one that leads.
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "culet/decoder.h"
#include "model/session_calls.h"
#include "model/session_impl.h"

namespace culet {
namespace {

using Hear = std::function<Result<std::vector<std::byte>>()>;

Result<Decision> NextDecision(const Hear& hear) {
  auto heard = hear();
  if (!heard) return heard.status();
  return CallReader(*heard).Get<Decision>();
}

struct OwnedBatch {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<SequenceTokens> parts;
};

OwnedBatch GetBatch(CallReader& call) {
  OwnedBatch batch;
  std::vector<int> sequences;
  const auto count = call.Get<std::uint64_t>();
  for (std::uint64_t i = 0; i < count; ++i) {
    sequences.push_back(call.Get<int>());
    batch.tokens.push_back(call.GetAll<std::int32_t>());
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    batch.parts.push_back({sequences[i], batch.tokens[i]});
  }
  return batch;
}

void PutBatch(CallWriter& call, std::span<const SequenceTokens> batch) {
  call.Put(static_cast<std::uint64_t>(batch.size()));
  for (const SequenceTokens& part : batch) call.Put(part.sequence).PutAll(part.tokens);
}

}  // namespace

void Session::SetLead(CallSink tell) {
  impl_->tell = std::move(tell);
  SetGate(std::exchange(impl_->gate, nullptr));
}

Status Session::Impl::Tell(const CallWriter& call) const {
  return tell ? tell(call.bytes()) : Status();
}

Status Session::Impl::TellStep(SessionCall call, std::span<const SequenceTokens> batch,
                               const StepOutputs& outputs) const {
  if (!tell) return {};
  CallWriter writer(call);
  writer.Put(outputs);
  PutBatch(writer, batch);
  return Tell(writer);
}

// What decides on rank 0 is told the others.
DecodeOptions Session::Impl::ToldOptions(const DecodeOptions& options) const {
  DecodeOptions told = options;
  if (!tell || !options.on_token) return told;
  told.on_token = [this, &options](std::size_t part, std::int32_t token) {
    Decision decision = Decision::kFailed;
    bool more = false;
    try {
      more = options.on_token(part, token);
      decision = more ? Decision::kGo : Decision::kEnd;
    } catch (...) {
      static_cast<void>(tell(std::as_bytes(std::span(&decision, 1))));
      throw;
    }
    // Others that are gone are missed in the next exchange.
    static_cast<void>(tell(std::as_bytes(std::span(&decision, 1))));
    return more;
  };
  return told;
}

Status Session::Impl::TellDecode(std::span<const SequenceTokens> batch,
                                 const DecodeOptions& options) const {
  if (!tell) return {};
  CallWriter writer(SessionCall::kDecode);
  writer.Put(options.steps).PutAll(std::span(options.end_tokens));
  writer.Put(options.on_token != nullptr);
  PutBatch(writer, batch);
  return Tell(writer);
}

NodeGate Session::Impl::ToldGate(NodeGate own) const {
  if (!tell || !own) return own;
  return [this, own = std::move(own)]() -> Status {
    const Status status = own();
    const Decision decision = status.ok() ? Decision::kGo : Decision::kEnd;
    const Status told = tell(std::as_bytes(std::span(&decision, 1)));
    return status.ok() ? told : status;
  };
}

Status Session::Follow(std::span<const std::byte> bytes, const Hear& hear) {
  CallReader call(bytes);
  switch (call.Get<SessionCall>()) {
    case SessionCall::kAdd:
      return AddSequence().status();
    case SessionCall::kRemove:
      return RemoveSequence(call.Get<int>());
    case SessionCall::kTruncate: {
      const int sequence = call.Get<int>();
      return Truncate(sequence, call.Get<int>());
    }
    case SessionCall::kSetSampling: {
      const int sequence = call.Get<int>();
      return SetSampling(sequence, call.Get<SamplingOptions>());
    }
    case SessionCall::kStep: {
      const auto outputs = call.Get<StepOutputs>();
      return Step(GetBatch(call).parts, outputs).status();
    }
    case SessionCall::kPrefill: {
      const auto outputs = call.Get<StepOutputs>();
      return Prefill(GetBatch(call).parts, outputs).status();
    }
    case SessionCall::kDecode: {
      DecodeOptions options;
      options.steps = call.Get<int>();
      options.end_tokens = call.GetAll<std::int32_t>();
      if (call.Get<bool>()) {
        options.on_token = [&](std::size_t, std::int32_t) {
          const auto decision = NextDecision(hear);
          if (!decision || *decision == Decision::kFailed) {
            throw std::runtime_error("rank 0 ended the call");
          }
          return *decision == Decision::kGo;
        };
      }
      return Decode(GetBatch(call).parts, options).status();
    }
    case SessionCall::kPrepare:
      return Prepare();
    case SessionCall::kGate:
      if (!call.Get<bool>()) {
        impl_->gate = nullptr;
        return {};
      }
      impl_->gate = [hear]() -> Status {
        const auto decision = NextDecision(hear);
        if (!decision) return decision.status();
        if (*decision == Decision::kGo) return {};
        return Status(StatusCode::kFailedPrecondition, "rank 0 ended the step");
      };
      return {};
    case SessionCall::kHook:
      SetHook(call.Get<bool>()
                  ? [](KernelDispatch& to, const NodeLaunch& launch) { return to.launch(launch); }
                  : NodeHook());
      return {};
  }
  return Status(StatusCode::kInternal, "rank 0 made a call that there is not");
}

}  // namespace culet
