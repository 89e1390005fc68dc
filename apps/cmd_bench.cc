// culet bench: kernels side by side, against the rates of this machine measured in the same run.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench_report.h"
#include "budget.h"
#include "commands.h"
#include "contenders.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "decode_bench.h"
#include "decode_report.h"
#include "decoder_args.h"
#include "interrupt.h"
#include "launch_overhead.h"
#include "output.h"
#include "problem_args.h"
#include "progress.h"
#include "session.h"

namespace culet::cli {
namespace {

// Slower than this after some rounds, a kernel can no longer be the best that --regret looks for.
// Samples of single launches scatter more than the means that a GPU's samples are.
constexpr double kRegretDropRatio = 1.5, kRegretDropRatioOfMeans = 1.15;

// What a problem's choice may take after the end of the budget, so that small budgets have an
// answer.
constexpr double kGraceS = 1;

struct BenchArgs {
  CommonArgs common;
  CacheArgs cache;
  ProblemArgs problems;
  std::string kernels = "best";
  int rounds = 10;
  double budget_s = 0;
  std::string routing;
  bool csv = false;
  bool repro = false;
  bool regret = false;
  bool untuned = false;
  bool launch_overhead = false;
  bool decode = false;
  bool no_record = false;
  DecodeBenchOptions model;
  TeamArgs team;
  std::string cache_type = "bf16", values, no_fusion;

  // As TeamArgs::Serve, of the model that `options` has.
  std::optional<int> ServeModel(const DecodeBenchOptions& options) const {
    const auto weights = WeightsOf(options.format);
    if (!weights.ok()) return Fail(weights.status(), common.json);
    TeamModel shared = options.team_model;
    shared.random = *weights;
    shared.unlimited = true;
    return team.Serve(shared, common.json);
  }

  std::string Misuse() const {
    if (csv && common.json) return "--csv and --json exclude each other";
    if (csv && repro)
      return "--csv has no room for --repro; its rows name kernel, swizzle and splits";
    if (launch_overhead) {
      const bool conflict = problems.given() || regret;
      return conflict ? "--launch-overhead takes no problems and no --regret" : "";
    }
    if (decode) {
      if (problems.model().empty()) return "--decode needs --model, a config.json or its folder";
      const bool conflict = problems.given_beside_model() || regret || csv || repro || untuned;
      return conflict ? "--decode takes --model, --format, --context, --batch, --prefill, --steps, "
                        "--kv, --values, --no-fusion, --no-record, --tune, --profile, --tp, "
                        "--budget, --cache and --json only"
             : team.given() && model.profile
                 ? "--profile times the launches of one process; leave out --tp"
                 : team.Misuse(common.device);
    }
    if (team.given()) return "--tp is for --decode";
    if (regret && kernels != "best") return "--regret times all kernels; leave out --kernels";
    if (regret && !cache.path.empty()) {
      return "--regret is about untuned choices; leave out --cache";
    }
    if (regret && untuned) return "--regret is about untuned choices; leave out --untuned";
    if (const auto selection = ParseSelection(kernels); !selection.ok()) {
      return selection.status().message();
    }
    return problems.Misuse();
  }
};

// Empty: of all kinds.
std::optional<GroupedRouting> RoutingOf(const std::string& name) {
  for (const GroupedRouting routing : kGroupedRoutings) {
    if (name == ToString(routing)) return routing;
  }
  return std::nullopt;
}

// The rate of a GPU's matrix units depends on the type; one run
// has one format. A CPU computes all types in F32.
DataType RateType(const DeviceInfo& device, const std::vector<Problem>& problems) {
  return device.arch == 0 ? DataType::kFloat32 : problems.front().desc.a.type;
}

Result<std::vector<Contender>> ContendersOf(const Selection& selection, const GemmDesc& desc,
                                            Gemm& gemm, std::optional<Gemm>& untuned) {
  auto contenders = SelectContenders(gemm, desc, selection);
  if (contenders.ok() && untuned.has_value()) {
    CULET_RETURN_IF_ERROR(AddUntuned(gemm, *untuned, desc, *contenders));
  }
  return contenders;
}

// Whether there is anything to report: a time, or why there is none.
bool Decided(const Contender& contender) { return contender.timed() || !contender.status.ok(); }

// `untuned`: an engine that knows no measurement, where --untuned asks for its choices.
int RunProblems(const BenchArgs& args, Gemm& gemm, std::optional<Gemm> untuned,
                const HardwareRates& rates, const std::vector<Problem>& problems) {
  using Format = BenchReport::Options::Format;
  const InterruptGuard guard;
  const Budget budget(args.budget_s);
  Progress progress;
  BenchReport report(
      gemm.device(), gemm.registry(), rates, problems,
      {args.common.json ? Format::kJson
       : args.csv       ? Format::kCsv
                        : Format::kTable,
       args.repro, args.regret, RoutingOf(args.routing), RateType(gemm.device(), problems)});
  Selection selection = *ParseSelection(args.kernels);
  MeasureOptions options;
  options.routing = RoutingOf(args.routing);
  options.rounds = args.rounds;
  if (args.regret) {
    selection.kind = Selection::kAll;
    const bool means = gemm.device().arch != 0;
    options.drop_ratio = means ? kRegretDropRatioOfMeans : kRegretDropRatio;
    options.drop_after = means ? 1 : 3;
  }

  report.Begin();
  for (std::size_t i = 0; i < problems.size() && InterruptSignal() == 0; ++i) {
    Problem problem = problems[i];
    options.on_inputs = [&](const TimingInputs& inputs) {
      if (inputs.grouped() != nullptr) problem.rows = inputs.grouped()->rows();
    };
    if (budget.exhausted()) {
      report.AddLeftOut();
      continue;
    }
    options.budget_s = budget.ShareOf(problems.size() - i);
    options.limit_s = budget.limited() ? budget.LeftS() + kGraceS : 0;
    options.stop = [] { return InterruptSignal() != 0; };
    options.on_sample = [&](double share, const Contender& current) {
      progress.Update((static_cast<double>(i) + share) / static_cast<double>(problems.size()),
                      fmt::format("{}/{} {}  {}", i + 1, problems.size(), Label(problem),
                                  current.spec.kernel->id()));
      return InterruptSignal() == 0;
    };
    auto contenders = ContendersOf(selection, problem.desc, gemm, untuned);
    Status status = contenders.status();
    if (status.ok()) status = MeasureContenders(gemm, problem.desc, options, *contenders);
    progress.Clear();
    if (status.ok() && std::ranges::any_of(*contenders, Decided)) {
      report.Add(problem, *std::move(contenders));
    } else if (InterruptSignal() != 0) {
      break;
    } else if (status.ok() || budget.exhausted()) {
      report.AddLeftOut();
    } else {
      report.AddFailure(problem, status);
    }
  }
  report.End(InterruptSignal() != 0);
  if (InterruptSignal() != 0) {
    Note("interrupted; what was measured before is reported");
    return InterruptExitCode();
  }
  return report.failed() ? kFailure : kSuccess;
}

int RunLaunchOverhead(const BenchArgs& args) {
  const bool json = args.common.json;
  Result<Session> session = OpenSession(args.common, nullptr);
  if (!session.ok()) return Fail(session.status(), json);
  const Result<LaunchOverhead> overhead = MeasureLaunchOverhead(session->gemm);
  if (!overhead.ok()) return Fail(overhead.status(), json);
  if (json) {
    PrintJson({{"device", session->gemm.device().device_class},
               {"launch_overhead",
                {{"plan_us", overhead->plan_us}, {"kernel_us", overhead->kernel_us}}}});
  } else {
    Print("a plan's launch of a kernel that does nothing: {}; the kernel called directly: {}\n",
          ShownTime(overhead->plan_us), ShownTime(overhead->kernel_us));
  }
  return kSuccess;
}

int RunDecode(const BenchArgs& args) {
  const bool json = args.common.json;
  DecodeBenchOptions options = args.model;
  options.config = args.problems.model();
  if (!args.problems.format().empty()) {
    const auto format = ParseFormat(args.problems.format());
    if (!format.ok()) return Misuse("--format: " + format.status().message());
    options.format = *format;
  } else {
    const auto shapes = ReadModelShapes(options.config);
    if (!shapes.ok()) return Fail(shapes.status(), json);
    options.format = shapes->format.value_or(options.format);
  }
  options.cache_type = ParseCacheType(args.cache_type);
  options.value_type = ParseValueType(args.values);
  options.fusions = WithoutFusions(args.no_fusion);
  options.record = !args.no_record;
  options.team_model = TeamModelOf(args.team, args.common, &args.cache, options.config);
  if (const auto served = args.ServeModel(options)) return *served;
  Result<Session> session = OpenSession(args.common, &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  const auto team = args.team.Start();
  if (!team.ok()) return Fail(team.status(), json);
  options.team = team->get();
  if (options.tune) {
    if (const Status status = CheckThatResultsCanBeSaved(*session); !status.ok()) {
      return Fail(status, json);
    }
  }
  const InterruptGuard guard;
  bool stopped = false;
  options.stop = [&stopped, budget = Budget(args.budget_s)] {
    stopped = stopped || InterruptSignal() != 0 || budget.exhausted();
    return stopped;
  };
  DecodeMeasurement measured;
  const Status status = MeasureDecode(session->gemm, options, measured);
  const bool interrupted = InterruptSignal() != 0;
  const Status saved = options.tune ? SaveResults(*session) : Status();
  if (!status.ok() && !stopped) return Fail(status, json);
  PrintDecode(session->gemm.device(), options, measured, status.ok(), json);
  if (interrupted) {
    Note("interrupted; what was not measured is left out");
    return InterruptExitCode();
  }
  if (!status.ok()) {
    Note(fmt::format("the budget of {} s ended; what was not measured is left out", args.budget_s));
  }
  return saved.ok() ? kSuccess : kFailure;
}

int RunBench(const BenchArgs& args) {
  const bool json = args.common.json;
  if (const std::string misuse = args.Misuse(); !misuse.empty()) return Misuse(misuse);
  if (args.launch_overhead) return RunLaunchOverhead(args);
  if (args.decode) return RunDecode(args);
  Result<Session> session = OpenSession(args.common, args.regret ? nullptr : &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  Gemm& gemm = session->gemm;
  const auto problems = args.problems.Load(gemm.device().arch);
  if (!problems.ok()) return Fail(problems.status(), json);
  const Status named = CheckNames(gemm.registry(), *ParseSelection(args.kernels));
  if (!named.ok()) return Fail(named, json);
  const DataType rate_type = RateType(gemm.device(), *problems);
  Result<HardwareRates> rates = MeasureRates(gemm.device(), rate_type);
  if (rates.status().code() == StatusCode::kResourceExhausted) {
    Note(fmt::format("{}; the shares are of typical rates", rates.status().message()));
    rates = TypicalRates(gemm.device(), rate_type);
  }
  if (!rates.ok()) return Fail(rates.status(), json);
  std::optional<Gemm> untuned;
  if (args.untuned) {
    Result<Gemm> made = Gemm::Create({args.common.device, {}, args.common.providers});
    if (!made.ok()) return Fail(made.status(), json);
    untuned.emplace(*std::move(made));
  }
  return RunProblems(args, gemm, std::move(untuned), *rates, *problems);
}

}  // namespace

void AddBench(const Command& program) {
  auto args = std::make_shared<BenchArgs>();
  const Command command =
      program.AddCommand("bench", "Time kernels side by side and check their results");
  args->problems.AddTo(command);
  command
      .Add("--kernels", args->kernels,
           "choice, best (the choice and three more), all, or ids, beginnings of ids and "
           "choice separated by commas, ids with @swizzle=N, @splits=N, @variant=N and "
           "@serial where they matter")
      .Type("WHICH")
      .ShowDefault();
  command.Add("--rounds", args->rounds, "Samples of each kernel")
      .Range(1, 1000000)
      .Type("N")
      .ShowDefault();
  AddBudget(command, &args->budget_s, "Seconds at most, for all problems together");
  command
      .Add("--routing", args->routing,
           "How tokens choose the experts of grouped products: at random, expert i with weight "
           "1 / (i + 1), or one has half of the rows; default: all three, the geometric mean of "
           "their times with even twice")
      .OneOf({"even", "zipf", "half"});
  command.AddFlag("--csv", args->csv, "Print rows of comma-separated values");
  command.AddFlag("--untuned", args->untuned,
                  "Time also what would be launched if nothing had been measured");
  command.AddFlag("--repro", args->repro, "Print below each line the command that repeats it");
  command.AddFlag("--regret", args->regret,
                  "Time all kernels; how far is the untuned choice from the best?");
  command.AddFlag("--launch-overhead", args->launch_overhead,
                  "Time only a plan's launch of a kernel that does nothing");
  const char* const models = "Whole models";
  command
      .AddFlag("--decode", args->decode,
               "Time the steps of --model as a whole, with random weights of --format")
      .Group(models);
  const auto count = [&](const char* name, int* value, int most, const char* description) {
    command.Add(name, *value, description).Range(1, most).Type("N").ShowDefault().Group(models);
  };
  constexpr int kMostTokens = 1 << 20;
  count("--context", &args->model.context, kMostTokens, "Positions before decoding starts");
  count("--batch", &args->model.batch, 4096, "Sequences that decode together");
  count("--prefill", &args->model.prefill, kMostTokens, "Tokens of the prompt that is timed");
  count("--steps", &args->model.steps, 100000, "Timed steps of decoding");
  command.Add("--kv", args->cache_type, "Type of the cache of keys and values")
      .OneOf(kCacheTypes)
      .ShowDefault()
      .Group(models);
  command.Add("--values", args->values, kValuesHelp).OneOf({"f32", "bf16"}).Group(models);
  command.Add("--no-fusion", args->no_fusion, kNoFusionHelp).Type("NAMES").Group(models);
  command.AddFlag("--no-record", args->no_record, kNoRecordHelp).Group(models);
  command
      .AddFlag("--profile", args->model.profile,
               "Time each launch among the others, where steps are recorded; else each node alone")
      .Group(models);
  command.AddFlag("--tune", args->model.tune, "Tune the model's products first").Group(models);
  args->team.AddTo(command);
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunBench(*args); });
}

}  // namespace culet::cli
