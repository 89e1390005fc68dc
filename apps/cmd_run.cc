// culet run: a checkpoint reads a prompt and goes on greedily.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/safetensors.h"
#include "decoder_args.h"
#include "node_profile.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct RunArgs {
  CommonArgs common;
  CacheArgs cache;
  DecoderArgs decoder;
  int max_new = 64;
  int batch = 1;
  bool profile = false;
  std::string dump;

  std::string Misuse() const {
    if (common.device != "cpu") return "run works on the CPU so far; leave out --device";
    return decoder.Misuse();
  }
};

// One of the batch's sequences.
struct Continuation {
  int sequence = -1;
  std::vector<std::int32_t> tokens;  // made so far
  const char* end = nullptr;         // why no more; null while it goes on
};

struct RunResult {
  std::vector<std::int32_t> prompt;
  std::vector<Continuation> continuations;
  double prefill_us = 0;  // of all sequences
  double decode_us = 0;   // of all steps
  int steps = 0;
  std::vector<NodeTime> prefill_nodes, decode_nodes;  // with --profile
};

class Runner {
 public:
  Runner(const RunArgs& args, const DecoderModel& model, culet::Session& session, RunResult& result)
      : args_(args), config_(model.config()), session_(session), result_(result) {}

  Status Run() {
    CULET_RETURN_IF_ERROR(Prefill());
    return Decode();
  }

 private:
  Status Prefill() {
    const bool dump = !args_.dump.empty();
    for (int i = 0; i < args_.batch; ++i) {
      const auto sequence = session_.AddSequence();
      if (!sequence.ok()) return sequence.status();
      if (args_.profile && i == 0) CULET_RETURN_IF_ERROR(ProfilePrompt());
      const StepOutputs outputs{.all_logits = dump && i == 0, .hidden = dump && i == 0};
      const Clock::time_point start = Clock::now();
      const auto read = session_.Prefill(*sequence, result_.prompt, outputs);
      result_.prefill_us += MicrosecondsSince(start);
      if (!read.ok()) return read.status();
      if (dump && i == 0) CULET_RETURN_IF_ERROR(Dump(*read));
      result_.continuations.push_back({*sequence, {}, nullptr});
      Take(result_.continuations.back(), read->next.back());
    }
    return {};
  }

  // On sequences of its own, so that the prompt's own time has no profile in it. Of a long prompt,
  // which runs in pieces, the first.
  Status ProfilePrompt() {
    const auto sequence = session_.AddSequence();
    if (!sequence.ok()) return sequence.status();
    const auto most = static_cast<std::size_t>(session_.options().max_step_tokens);
    const SequenceTokens part{
        *sequence, std::span(result_.prompt).first(std::min(most, result_.prompt.size()))};
    CULET_RETURN_IF_ERROR(session_.Step({&part, 1}).status());  // to warm up
    CULET_RETURN_IF_ERROR(session_.RemoveSequence(*sequence));
    const auto again = session_.AddSequence();
    if (!again.ok()) return again.status();
    NodeProfile profile;
    session_.SetHook(profile.Hook());
    const SequenceTokens timed{*again, part.tokens};
    const Status status = session_.Step({&timed, 1}).status();
    session_.SetHook(nullptr);
    CULET_RETURN_IF_ERROR(status);
    result_.prefill_nodes = profile.Nodes(*session_.last_executor());
    return session_.RemoveSequence(*again);
  }

  Status Decode() {
    NodeProfile profile;
    std::size_t profiled = 0;  // sequences of the steps that are profiled: all of them at first
    while (true) {
      std::vector<Continuation*> active;
      for (Continuation& c : result_.continuations) {
        if (c.end == nullptr) active.push_back(&c);
      }
      if (active.empty()) return {};
      std::vector<SequenceTokens> batch;
      for (const Continuation* c : active) batch.push_back({c->sequence, {&c->tokens.back(), 1}});
      if (profiled == 0) profiled = active.size();
      const bool record = args_.profile && active.size() == profiled;
      session_.SetHook(record ? profile.Hook() : nullptr);
      const Clock::time_point start = Clock::now();
      const auto made = session_.Step(batch);
      result_.decode_us += MicrosecondsSince(start);
      if (!made.ok()) return made.status();
      ++result_.steps;
      if (record) result_.decode_nodes = profile.Nodes(*session_.last_executor());
      for (std::size_t i = 0; i < active.size(); ++i) Take(*active[i], made->next[i]);
    }
  }

  void Take(Continuation& continuation, std::int32_t token) const {
    if (args_.max_new == 0) {
      continuation.end = "max_new";
      return;
    }
    continuation.tokens.push_back(token);
    const std::size_t length = result_.prompt.size() + continuation.tokens.size();
    if (std::ranges::find(config_.eos_ids, token) != config_.eos_ids.end()) {
      continuation.end = "eos";
    } else if (static_cast<int>(continuation.tokens.size()) >= args_.max_new) {
      continuation.end = "max_new";
    } else if (config_.max_position > 0 &&
               length > static_cast<std::size_t>(config_.max_position)) {
      continuation.end = "max_position";
    }
  }

  Status Dump(const StepResult& read) const {
    const auto tokens = static_cast<std::int64_t>(result_.prompt.size());
    return WriteSafetensors(
        args_.dump, {{"hidden",
                      DataType::kFloat32,
                      {config_.layers + 1, tokens, config_.hidden},
                      read.hidden.data()},
                     {"logits", DataType::kFloat32, {tokens, config_.vocab}, read.logits.data()}});
  }

  const RunArgs& args_;
  const DecoderConfig& config_;
  culet::Session& session_;
  RunResult& result_;
};

// Bytes as they are, what is no byte as <id>.
std::string Text(const std::vector<std::int32_t>& tokens) {
  constexpr std::int32_t kBytes = 256;
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < kBytes) {
      text.push_back(static_cast<char>(token));
    } else {
      text += fmt::format("<{}>", token);
    }
  }
  return text;
}

// What the end of a text leaves out: its stop token.
std::vector<std::int32_t> WithoutEos(const Continuation& continuation) {
  std::vector<std::int32_t> tokens = continuation.tokens;
  if (continuation.end == std::string("eos")) tokens.pop_back();
  return tokens;
}

double TokensPerSecond(const RunResult& result) {
  std::size_t made = 0;
  for (const Continuation& c : result.continuations) made += c.tokens.size();
  made -= std::min(made, result.continuations.size());  // the first ones came with the prompt
  return made == 0 ? 0 : static_cast<double>(made) / (result.decode_us * 1e-6);
}

void Print(const RunArgs& args, const RunResult& result, const HardwareRates& rates) {
  for (const Continuation& c : result.continuations) {
    if (args.decoder.bytes()) {
      fmt::print("{}{}\n", args.decoder.prompt(), Text(WithoutEos(c)));
    } else {
      fmt::print("{}\n", fmt::join(c.tokens, ","));
    }
  }
  std::string made;
  if (result.steps > 0) {
    made = fmt::format("; {} at {} each, {:.1f} tokens/s",
                       Counted(static_cast<std::size_t>(result.steps), "step"),
                       ShownTime(result.decode_us / result.steps), TokensPerSecond(result));
  }
  Note(fmt::format("{} read in {}{}",
                   Counted(result.prompt.size() * result.continuations.size(), "token"),
                   ShownTime(result.prefill_us), made));
  if (!args.profile) return;
  fmt::print("\n{:.1f} GB/s read, {:.0f} GFLOP/s, measured\n", rates.read_gbps, rates.gflops);
  PrintNodes("the prompt", result.prefill_nodes, rates);
  if (!result.decode_nodes.empty()) {
    PrintNodes("a step of decoding, medians", result.decode_nodes, rates);
  }
}

void PrintDocument(const RunArgs& args, const RunResult& result, const HardwareRates& rates,
                   const DeviceInfo& device) {
  Json sequences = Json::array();
  for (const Continuation& c : result.continuations) {
    Json sequence = {{"tokens", c.tokens}, {"end", c.end}};
    // JSON holds text, not bytes.
    if (args.decoder.bytes()) {
      const std::string text = Text(WithoutEos(c));
      const bool ascii = std::ranges::all_of(text, [](unsigned char byte) { return byte < 0x80; });
      sequence["text"] = ascii ? Json(text) : Json();
    }
    sequences.push_back(std::move(sequence));
  }
  Json document = {{"device", device.device_class},
                   {"dispatch", args.decoder.dispatch()},
                   {"model", args.decoder.model()},
                   {"prompt", result.prompt},
                   {"sequences", std::move(sequences)},
                   {"prefill_us", Number(result.prefill_us)},
                   {"decode_steps", result.steps},
                   {"decode_us", Number(result.decode_us)},
                   {"decode_tokens_per_s", Number(TokensPerSecond(result))}};
  if (args.profile) {
    document["profile"] = {{"read_gbps", Number(rates.read_gbps)},
                           {"gflops", Number(rates.gflops)},
                           {"prompt", ToJson(result.prefill_nodes, rates)},
                           {"decode", ToJson(result.decode_nodes, rates)}};
  }
  PrintJson(document);
}

SessionOptions OptionsFor(const RunArgs& args, const DecoderConfig& config, std::size_t prompt) {
  constexpr int kMostStepTokens = 512;
  SessionOptions options;
  options.max_sequences = args.batch + (args.profile ? 1 : 0);
  options.max_context = static_cast<int>(prompt) + args.max_new;
  if (config.max_position > 0) {
    options.max_context = std::min(options.max_context, config.max_position);
  }
  options.max_step_tokens =
      std::max(std::min(static_cast<int>(prompt), kMostStepTokens), args.batch);
  options.cache_type = args.decoder.cache_type();
  return options;
}

int RunRun(const RunArgs& args) {
  const bool json = args.common.json;
  if (const std::string misuse = args.Misuse(); !misuse.empty()) return Misuse(misuse);
  auto opened = args.decoder.Open(args.common, args.cache);
  if (!opened.ok()) return Fail(opened.status(), json);
  const DeviceInfo& device = opened->session.gemm.device();
  RunResult result;
  result.prompt = opened->prompt;

  HardwareRates rates;
  if (args.profile) {
    const auto measured = MeasureRates(device, DataType::kFloat32);
    if (!measured.ok()) return Fail(measured.status(), json);
    rates = *measured;
  }
  const auto dispatch = args.decoder.MakeDispatch(*opened);
  auto decoder = culet::Session::Create(
      opened->model, *dispatch, OptionsFor(args, opened->model.config(), result.prompt.size()));
  if (!decoder.ok()) return Fail(decoder.status(), json);
  const Status status = Runner(args, opened->model, *decoder, result).Run();
  const Status saved = args.decoder.SaveTuned(*opened);
  if (!status.ok()) return Fail(status, json);
  if (!saved.ok()) return Fail(saved, json);
  if (json) {
    PrintDocument(args, result, rates, device);
  } else {
    Print(args, result, rates);
  }
  return kSuccess;
}

}  // namespace

void AddRun(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<RunArgs>();
  CLI::App& command =
      *app.add_subcommand("run", "Let a checkpoint read a prompt and go on, token by token");
  args->decoder.AddTo(command);
  args->decoder.AddDispatchTo(command);
  command
      .add_option("--max-new", args->max_new, "Tokens to make at most; an end token ends earlier")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--batch", args->batch, "Run the prompt as so many sequences at once")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_flag("--profile", args->profile,
                   "Print each node's kernel, time, bytes and share of the roofline");
  command
      .add_option("--dump", args->dump,
                  "Write the prompt's logits [T, V] and hidden states [L + 1, T, H] as F32")
      ->type_name("FILE");
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.callback([args, &chosen] { chosen = [args] { return RunRun(*args); }; });
}

}  // namespace culet::cli
