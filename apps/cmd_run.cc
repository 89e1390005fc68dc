// culet run: a checkpoint reads prompts and goes on, greedily or drawing tokens.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "decode_run.h"
#include "decoder_args.h"
#include "interrupt.h"
#include "node_profile.h"
#include "output.h"
#include "sampling_args.h"
#include "session.h"

namespace culet::cli {
namespace {

struct RunArgs {
  CommonArgs common;
  CacheArgs cache;
  DecoderArgs decoder;
  DecodeRunOptions run;
  SamplingArgs sampling;
  int batch = 1;
  bool stream = false;

  std::string Misuse() const {
    if (stream && common.json) {
      return "--stream prints tokens as they come and --json one document at the end; give one of "
             "them";
    }
    if (batch > 1 && decoder.from_file()) {
      return "--batch repeats one prompt; a file's prompts are a batch already";
    }
    if (!run.dump.empty() && (batch > 1 || decoder.from_file())) {
      return "--dump takes one prompt; leave out --batch and the file of prompts";
    }
    if (run.profile && decoder.shares()) {
      return "--profile times the nodes of one process; leave out --tp";
    }
    const std::string misuse = sampling.Misuse();
    return misuse.empty() ? decoder.Misuse(common.device) : misuse;
  }
};

// The bytes of a text, where they are ASCII: JSON holds text, not bytes. The token that ended it is
// no part of it.
Json Text(const Continuation& continuation) {
  std::string text;
  const std::size_t ends = continuation.end == "eos" ? 1 : 0;
  for (std::size_t i = 0; i + ends < continuation.tokens.size(); ++i) {
    const std::int32_t token = continuation.tokens[i];
    if (token >= 0x80) return {};
    text.push_back(static_cast<char>(token));
  }
  return text;
}

// How much of a step of one token was measured; nothing where no product has a choice.
std::string Covered(const Coverage& coverage) {
  if (coverage.problems == 0) return {};
  return fmt::format("a step of one token: {} of {} have a measured kernel{}", coverage.measured,
                     Counted(static_cast<std::size_t>(coverage.problems), "product"),
                     coverage.measured < coverage.problems
                         ? ", the others a predicted one: CULET_RECORD=FILE writes them down, "
                           "culet tune --from FILE measures them"
                         : "");
}

void PrintRun(RunArgs& args, const DecodeRun& run, const HardwareRates& rates) {
  std::string made;
  if (run.steps > 0) {
    made = fmt::format("; {} at {} each, {:.1f} tokens/s",
                       Counted(static_cast<std::size_t>(run.steps), "step"),
                       ShownTime(run.decode_us / run.steps), run.TokensPerSecond());
  }
  if (run.read) {
    Note(fmt::format("{} read in {}{}", Counted(run.PromptTokens(), "token"),
                     ShownTime(run.prefill_us), made));
  }
  if (args.sampling.draws()) Note(fmt::format("drawn with {}", args.sampling.Describe()));
  // What records steps and could not says why.
  if (args.common.device != "cpu" && run.steps > 2 && !run.recorded &&
      (!args.run.profile || run.decode_nodes.empty() || run.decode_nodes.front().among)) {
    Note(fmt::format("steps were launched node by node: {}", run.why_not_recorded));
  }
  if (!args.run.profile) return;
  Print("\n{:.1f} GB/s read, {:.0f} GFLOP/s, measured\n", rates.read_gbps, rates.gflops);
  for (const auto& [what, nodes] : {std::pair{"the prompt", &run.prefill_nodes},
                                    std::pair{"a step of decoding", &run.decode_nodes}}) {
    if (nodes->empty()) continue;
    const char* const how =
        nodes->front().among ? ", each launch among the others of a replay" : "";
    PrintNodes(fmt::format("{}, medians{}", what, how), *nodes, rates);
  }
}

void PrintDocument(RunArgs& args, const OpenedDecoder& opened, const DecodeRun& run,
                   const HardwareRates& rates) {
  Json sequences = Json::array();
  for (const Continuation& c : run.continuations) {
    Json sequence = {{"prompt", c.prompt}, {"tokens", c.tokens}, {"end", c.end}};
    if (!opened.texts.empty()) sequence["text"] = Text(c);
    sequences.push_back(std::move(sequence));
  }
  Json document = {{"device", opened.session.gemm.device().device_class},
                   {"dispatch", args.decoder.dispatch(args.common.device)},
                   {"model", args.decoder.model()},
                   {"sequences", std::move(sequences)},
                   {"interrupted", InterruptSignal() != 0},
                   {"prefill_us", Number(run.prefill_us)},
                   {"decode_steps", run.steps},
                   {"decode_us", Number(run.decode_us)},
                   {"decode_recorded", run.recorded},
                   {"decode_not_recorded", run.why_not_recorded},
                   {"decode_tokens_per_s", Number(run.TokensPerSecond())}};
  const Coverage coverage = opened.session.gemm.coverage();
  document["coverage"] = {{"products", coverage.problems}, {"measured", coverage.measured}};
  if (args.sampling.draws()) document["sampling"] = args.sampling.ToJson();
  if (args.run.profile) {
    document["profile"] = {{"read_gbps", Number(rates.read_gbps)},
                           {"gflops", Number(rates.gflops)},
                           {"prompt", ToJson(run.prefill_nodes, rates)},
                           {"decode", ToJson(run.decode_nodes, rates)}};
  }
  PrintJson(document);
}

SessionOptions OptionsFor(const RunArgs& args, const DecoderConfig& config,
                          const std::vector<std::vector<std::int32_t>>& prompts) {
  std::size_t longest = 0;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    longest = std::max(longest, prompt.size());
  }
  SessionOptions options;
  options.max_sequences = static_cast<int>(prompts.size()) * args.batch;
  options.max_context = static_cast<int>(longest) + args.run.max_new;
  if (config.max_position > 0) {
    options.max_context = std::min(options.max_context, config.max_position);
  }
  options.cache_type = args.decoder.cache_type();
  options.value_type = args.decoder.value_type();
  options.fusions = args.decoder.fusions();
  options.record = args.decoder.records();
  return options;
}

int RunRun(RunArgs& args) {
  const bool json = args.common.json;
  if (const std::string misuse = args.Misuse(); !misuse.empty()) return Misuse(misuse);
  if (const auto served = args.decoder.Serve(args.common, args.cache)) return *served;
  auto opened =
      args.decoder.Open(args.common, args.cache,
                        [&](const auto& config, const auto& prompts) -> Result<SessionOptions> {
                          return OptionsFor(args, config, prompts);
                        });
  if (!opened.ok()) return Fail(opened.status(), json);
  DecodeRun run;
  Continuation continuation;
  for (const std::vector<std::int32_t>& prompt : opened->prompts) {
    continuation.prompt = prompt;
    run.continuations.resize(run.continuations.size() + static_cast<std::size_t>(args.batch),
                             continuation);
  }
  for (std::size_t i = 0; i < run.continuations.size(); ++i) {
    run.continuations[i].sampling = args.sampling.OptionsOf(i);
  }
  std::vector<std::string> texts;
  for (const std::string& text : opened->texts) {
    texts.resize(texts.size() + static_cast<std::size_t>(args.batch), text);
  }

  HardwareRates rates;
  if (args.run.profile) {
    const auto measured = MeasureRates(opened->session.gemm.device(), DataType::kFloat32);
    if (!measured.ok()) return Fail(measured.status(), json);
    rates = *measured;
  }
  auto dispatch = args.decoder.MakeDispatch(*opened);
  if (!dispatch.ok()) return Fail(dispatch.status(), json);
  auto session = args.decoder.CreateSession(*opened, *dispatch);
  if (!session.ok()) return Fail(session.status(), json);
  TokenStream stream = texts.empty() ? TokenStream::OfNumbers(run.continuations.size())
                                     : TokenStream::OfTexts(std::move(texts));
  const InterruptGuard guard;
  session->SetGate(InterruptGate());
  if (const Status planned = session->Prepare(); !planned.ok() && InterruptSignal() == 0) {
    return Fail(planned, json);
  }
  if (const std::string covered = Covered(opened->session.gemm.coverage()); !covered.empty()) {
    Note(covered);
  }
  Status status = RunDecode(args.run, *session, run, json ? nullptr : &stream);
  if (!json && run.read) {
    if (const Status ended = stream.EndAll(); status.ok()) status = ended;
  }
  const bool interrupted = InterruptSignal() != 0;
  for (Continuation& c : run.continuations) {
    if (interrupted && c.end.empty()) c.end = "interrupted";
  }
  const Status saved = args.decoder.SaveTuned(*opened);
  if (!status.ok() && !interrupted) return Fail(status, json);
  if (json) {
    PrintDocument(args, *opened, run, rates);
  } else {
    PrintRun(args, run, rates);
  }
  if (interrupted) {
    Note("interrupted");
    return InterruptExitCode();
  }
  return saved.ok() ? kSuccess : kFailure;  // SaveResults has said why
}

}  // namespace

void AddRun(const Command& program) {
  auto args = std::make_shared<RunArgs>();
  const Command command =
      program.AddCommand("run", "Let a checkpoint read a prompt and go on, token by token");
  args->decoder.AddTo(command);
  args->decoder.AddFilesTo(command);
  args->decoder.AddDispatchTo(command);
  args->decoder.AddTeamTo(command);
  command.Add("--max-new", args->run.max_new, "Tokens to make at most; an end token ends earlier")
      .Type("N")
      .Range(0, 1 << 20)
      .ShowDefault();
  command.Add("--batch", args->batch, "Run the prompt as so many sequences at once")
      .Type("N")
      .Range(1, 4096)
      .ShowDefault();
  command.AddFlag("--stream", args->stream,
                  "Print tokens as they come, as is done without it where --json is not given");
  command.AddFlag("--profile", args->run.profile,
                  "Print each node's kernel, time, bytes and share of the roofline");
  command
      .Add("--dump", args->run.dump,
           "Write the prompt's logits [T, V] and hidden states [L + 1, T, H] as F32")
      .Type("FILE");
  args->sampling.AddTo(command);
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunRun(*args); });
}

}  // namespace culet::cli
