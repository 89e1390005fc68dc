// culet compare: a checkpoint's steps, node by node, beside the reference.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decoder_args.h"
#include "interrupt.h"
#include "node_compare.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

struct CompareArgs {
  CommonArgs common;
  CacheArgs cache;
  DecoderArgs decoder;
  int steps = 1;
  double bound = 1e-5;

  std::string Misuse() const { return decoder.Misuse(common.device); }
};

Status RunSteps(const CompareArgs& args, culet::Session& session,
                const std::vector<std::int32_t>& prompt, NodeComparison& comparison) {
  const auto sequence = session.AddSequence();
  if (!sequence.ok()) return sequence.status();
  session.SetHook(comparison.Hook("prompt"));
  auto result = session.Prefill(*sequence, prompt);
  if (!result.ok()) return result.status();
  for (int i = 1; i <= args.steps; ++i) {
    session.SetHook(comparison.Hook(fmt::format("step {}", i)));
    const std::int32_t token = result->next.back();
    const SequenceTokens next{*sequence, {&token, 1}};
    result = session.Step({&next, 1});
    if (!result.ok()) return result.status();
  }
  return {};
}

Json ToJson(const NodeError& error) {
  return {{"step", error.step},
          {"node", error.node},
          {"op", error.op},
          {"error", Number(error.error)},
          {"bound", Number(error.bound)}};
}

// The worst node of each operation, in the order in which operations come first.
std::vector<const NodeError*> WorstOfEach(const std::vector<NodeError>& errors) {
  std::vector<const NodeError*> worst;
  for (const NodeError& error : errors) {
    const auto known = std::ranges::find(worst, error.op, [](const NodeError* e) { return e->op; });
    if (known == worst.end()) {
      worst.push_back(&error);
    } else if (!(error.error / error.bound <= (*known)->error / (*known)->bound)) {
      *known = &error;
    }
  }
  return worst;
}

// After Ctrl-C the nodes that were not reached say nothing.
int ExitCodeOf(bool all_within) {
  if (InterruptSignal() != 0) {
    Note("interrupted; these are the nodes until then");
    return InterruptExitCode();
  }
  return all_within ? kSuccess : kFailure;
}

int Report(const CompareArgs& args, const std::vector<NodeError>& errors) {
  const auto beyond = [](const NodeError& error) { return !error.within(); };
  const auto first = std::ranges::find_if(errors, beyond);
  const auto count = static_cast<std::size_t>(std::ranges::count_if(errors, beyond));
  const std::vector<const NodeError*> worst = WorstOfEach(errors);
  if (args.common.json) {
    Json list = Json::array();
    for (const NodeError* error : worst) list.push_back(ToJson(*error));
    PrintJson({{"nodes", errors.size()},
               {"interrupted", InterruptSignal() != 0},
               {"beyond", count},
               {"first_beyond", first == errors.end() ? Json() : ToJson(*first)},
               {"worst", std::move(list)}});
    return ExitCodeOf(first == errors.end());
  }
  using Align = Table::Align;
  Table table({{"operation"},
               {"error", Align::kRight},
               {"bound", Align::kRight},
               {"step"},
               {"worst node"}});
  for (const NodeError* error : worst) {
    table.Add({error->op, fmt::format("{:.2e}", error->error), fmt::format("{:.2e}", error->bound),
               error->step, error->node});
  }
  Print("{}", table.ToString());
  if (first == errors.end()) {
    Print("{}, all within their bounds\n", Counted(errors.size(), "node"));
    return ExitCodeOf(true);
  }
  Print("{} of {} beyond their bounds; the first, {}: {}: {:.2e}, bound {:.2e}\n", count,
        Counted(errors.size(), "node"), first->step, first->node, first->error, first->bound);
  return ExitCodeOf(false);
}

Result<SessionOptions> OptionsFor(const CompareArgs& args, const DecoderConfig& config,
                                  const std::vector<std::vector<std::int32_t>>& prompts) {
  SessionOptions options;
  const std::vector<std::int32_t>& prompt = prompts.front();
  const std::size_t positions = prompt.size() + static_cast<std::size_t>(args.steps);
  const int most = config.max_position;
  if (most > 0 && positions > static_cast<std::size_t>(most)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the prompt has {} tokens and --steps is {}; {} was made for at "
                              "most {} positions",
                              prompt.size(), args.steps, args.decoder.model(), most));
  }
  options.max_context = static_cast<int>(positions);
  options.cache_type = args.decoder.cache_type();
  options.value_type = args.decoder.value_type();
  options.fusions = args.decoder.fusions();
  options.record = args.decoder.records();
  return options;
}

int RunCompare(const CompareArgs& args) {
  const bool json = args.common.json;
  if (const std::string misuse = args.Misuse(); !misuse.empty()) return Misuse(misuse);
  auto opened = args.decoder.Open(
      args.common, args.cache,
      [&](const auto& config, const auto& prompts) { return OptionsFor(args, config, prompts); });
  if (!opened.ok()) return Fail(opened.status(), json);
  const auto dispatch = args.decoder.MakeDispatch(*opened);
  if (!dispatch.ok()) return Fail(dispatch.status(), json);
  auto decoder = culet::Session::Create(opened->model, **dispatch, opened->options);
  if (!decoder.ok()) return Fail(decoder.status(), json);
  const InterruptGuard guard;
  decoder->SetGate(InterruptGate());
  NodeComparison comparison(args.bound, MakeReferenceDispatch());
  std::optional<DecoderModel> on_host;  // for the reference, which reads the host's memory
  if (!(*dispatch)->memory().reads_host_memory()) {
    auto loaded = DecoderModel::Load(args.decoder.model(), HostMemory());
    if (!loaded.ok()) return Fail(loaded.status(), json);
    on_host = *std::move(loaded);
    comparison.ReadWeightsOf(*on_host);
    comparison.AllowRoundedInputs(!args.decoder.exact());
    comparison.AllowShortSums(true);
  }
  const Status status = RunSteps(args, *decoder, opened->prompts.front(), comparison);
  const Status saved = args.decoder.SaveTuned(*opened);
  const bool interrupted = InterruptSignal() != 0;
  if (!status.ok() && !interrupted) return Fail(status, json);
  const int code = Report(args, comparison.errors());
  return code == kSuccess && !saved.ok() ? kFailure : code;  // SaveResults has said why
}

}  // namespace

void AddCompare(const Command& program) {
  auto args = std::make_shared<CompareArgs>();
  const Command command = program.AddCommand(
      "compare", "Run a checkpoint node by node beside the definition in double");
  args->decoder.AddTo(command);
  command.Add("--steps", args->steps, "Steps of decoding after the prompt")
      .Type("N")
      .Range(0, 1 << 20)
      .ShowDefault();
  command
      .Add("--bound", args->bound,
           "Relative L2 error that a float32 value may have; 16-bit values and E4M3 products "
           "may have that of their rounding more")
      .AboveZero("an error")
      .ShowDefault();
  command.Footer(
      "Each node gets the inputs that --dispatch made, so that what an earlier node did to them\n"
      "does not count. Outputs that differ by per cents while every node is within its bound come\n"
      "from inputs on an E4M3 rounding tie: those of 'culet run --dump' with --dispatch cpu and\n"
      "with --dispatch reference then differ, too, from one position on.");
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunCompare(*args); });
}

}  // namespace culet::cli
