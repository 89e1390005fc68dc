// culet bench: kernels side by side, against the rates of this machine measured in the same run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "contenders.h"
#include "culet/gemm.h"
#include "culet/scratch.h"
#include "interrupt.h"
#include "launch_overhead.h"
#include "output.h"
#include "problem_args.h"
#include "progress.h"
#include "session.h"

namespace culet::cli {
namespace {

struct BenchArgs {
  CommonArgs common;
  CacheArgs cache;
  ProblemArgs problems;
  std::string kernels = "best";
  int rounds = 10;
  double budget_s = 0;
  bool repro = false;
  bool regret = false;
  bool launch_overhead = false;

  std::string Misuse() const {
    if (launch_overhead) {
      return problems.given() || regret ? "--launch-overhead takes no problems and no --regret"
                                        : "";
    }
    if (regret && kernels != "best") return "--regret times all kernels; leave out --kernels";
    if (regret && !cache.path.empty())
      return "--regret is about untuned choices; leave out --cache";
    if (ParseSelection(kernels).kind == Selection::kNamed &&
        ParseSelection(kernels).names.empty()) {
      return "--kernels is empty; give best, all, or ids separated by commas";
    }
    return problems.Misuse();
  }
};

// Slower than this after three rounds, a kernel can no longer be the best that --regret looks for.
constexpr double kRegretDropRatio = 1.5;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Measured where that is possible.
Result<HardwareRates> RatesOf(const DeviceInfo& device) {
  return device.arch == 0 ? MeasureHostRates()
                          : Result<HardwareRates>(TypicalRates(device, DataType::kBfloat16));
}

double RooflineUs(const GemmDesc& desc, const HardwareRates& rates) {
  return std::max(MinimumBytes(desc) / (rates.read_gbps * 1e3),
                  Operations(desc) / (rates.gflops * 1e3));
}

class Bench {
 public:
  Bench(const BenchArgs& args, Session session, HardwareRates rates, std::vector<Problem> problems)
      : args_(args),
        session_(std::move(session)),
        rates_(rates),
        problems_(std::move(problems)),
        start_s_(NowSeconds()),
        table_(Columns()) {}

  int Run() {
    const InterruptGuard guard;
    if (!args_.common.json) {
      fmt::print("{}\n{}", DeviceLine(), table_.Header());
    }
    for (const Problem& problem : problems_) {
      if (InterruptSignal() != 0) break;
      if (const Status status = RunOne(problem); !status.ok()) {
        progress_.Clear();
        failed_ = true;
        documents_.push_back(ToJson(problem));
        documents_.back()["error"] = status.message();
        Note(fmt::format("{} m={}: {}", problem.name, problem.desc.m, status.message()));
      }
      ++done_;
    }
    progress_.Clear();
    if (args_.common.json) {
      PrintJson(Document());
    } else {
      fmt::print("{}", Summary());
    }
    if (InterruptSignal() != 0) {
      Note("interrupted; what was measured before is reported");
      return InterruptExitCode();
    }
    return failed_ ? kFailure : kSuccess;
  }

 private:
  Status RunOne(const Problem& problem) {
    MeasureOptions options;
    options.rounds = args_.rounds;
    if (args_.budget_s > 0) {
      const double left_s = args_.budget_s - (NowSeconds() - start_s_);
      if (left_s <= 0) {
        ++left_out_;
        return {};
      }
      options.budget_s = left_s / static_cast<double>(problems_.size() - done_);
    }
    Selection selection = ParseSelection(args_.kernels);
    if (args_.regret) {
      selection.kind = Selection::kAll;
      options.drop_ratio = kRegretDropRatio;
    }
    auto contenders = SelectContenders(session_.gemm, problem.desc, selection);
    if (!contenders.ok()) return contenders.status();
    options.on_sample = [&](double share, const Contender& current) {
      progress_.Update((static_cast<double>(done_) + share) / static_cast<double>(problems_.size()),
                       fmt::format("{}/{} {} m={}  {}", done_ + 1, problems_.size(), problem.name,
                                   problem.desc.m, current.spec.kernel->id()));
      return InterruptSignal() == 0;
    };
    CULET_RETURN_IF_ERROR(MeasureContenders(session_.gemm, problem.desc, options, *contenders));
    // Fastest first, what was not timed last.
    std::stable_sort(contenders->begin(), contenders->end(),
                     [](const Contender& a, const Contender& b) {
                       if (a.timed() != b.timed()) return a.timed();
                       return a.timed() && a.MedianUs() < b.MedianUs();
                     });
    Report(problem, *contenders);
    return {};
  }

  void Report(const Problem& problem, const std::vector<Contender>& contenders) {
    progress_.Clear();
    Json document = ToJson(problem);
    document["roofline_us"] = Number(RooflineUs(problem.desc, rates_));
    document["bytes"] = MinimumBytes(problem.desc);
    document["operations"] = Operations(problem.desc);
    document["kernels"] = Json::array();
    for (const Contender& contender : contenders) {
      if (contender.status.ok() && contender.samples_us.empty()) continue;  // interrupted
      failed_ = failed_ || contender.status.code() == StatusCode::kWrongResult;
      document["kernels"].push_back(ContenderJson(problem, contender));
      if (!args_.common.json) PrintRow(problem, contender);
    }
    NoteRegret(problem, contenders);
    documents_.push_back(std::move(document));
    std::fflush(stdout);
  }

  void NoteRegret(const Problem& problem, const std::vector<Contender>& contenders) {
    const auto choice = std::find_if(contenders.begin(), contenders.end(),
                                     [](const Contender& c) { return c.is_choice && c.timed(); });
    if (!args_.regret || choice == contenders.end()) return;
    const double ratio = choice->MedianUs() / contenders.front().MedianUs();
    log_regret_ += std::log(ratio);
    ++regrets_;
    if (ratio > worst_regret_) {
      worst_regret_ = ratio;
      worst_problem_ = fmt::format("{} m={}", problem.name, problem.desc.m);
    }
  }

  double GeometricMeanRegret() const { return std::exp(log_regret_ / std::max(regrets_, 1)); }

  std::string Repro(const Problem& problem, const Contender& contender) const {
    const DeviceInfo& device = session_.gemm.device();
    const std::string where = device.arch == 0 ? fmt::format("--threads {}", device.units)
                                               : fmt::format("--device cuda:{}", device.ordinal);
    return fmt::format("culet bench {} --kernels {} {}", problem.arguments,
                       contender.spec.kernel->id(), where);
  }

  std::vector<Table::Column> Columns() {
    std::vector<Table::Column> columns = ProblemColumns(problems_);
    std::size_t widest = 0;
    for (const Kernel* kernel : session_.gemm.registry().kernels()) {
      widest = std::max(widest, kernel->id().size());
    }
    columns.push_back({"kernel", Table::Align::kLeft, widest + 2});
    columns.push_back({"median", Table::Align::kRight, 7});
    columns.push_back({"spread", Table::Align::kRight, 7});
    columns.push_back({"GFLOP/s", Table::Align::kRight, 7});
    columns.push_back({"GB/s", Table::Align::kRight, 6});
    columns.push_back({"roofline", Table::Align::kRight, 8});
    columns.push_back({"error", Table::Align::kRight, 7});
    return columns;
  }

  void PrintRow(const Problem& problem, const Contender& contender) const {
    std::vector<std::string> cells = ProblemCells(problem);
    cells.push_back((contender.is_choice ? "* " : "  ") + contender.spec.kernel->id());
    if (contender.timed()) {
      const double time_us = contender.MedianUs();
      cells.push_back(ShownTime(time_us));
      cells.push_back(fmt::format("{:.1f} %", 100 * contender.SpreadUs() / time_us));
      cells.push_back(fmt::format("{:.1f}", Operations(problem.desc) / time_us / 1e3));
      cells.push_back(fmt::format("{:.1f}", MinimumBytes(problem.desc) / time_us / 1e3));
      cells.push_back(fmt::format("{:.0f} %", 100 * RooflineUs(problem.desc, rates_) / time_us));
      cells.push_back(fmt::format("{:.1e}", contender.error.relative_l2));
    } else {
      cells.insert(cells.end(), 6, "-");
    }
    fmt::print("{}", table_.Row(cells));
    if (!contender.status.ok()) {
      fmt::print("    {}: {}\n", ToString(contender.status.code()), contender.status.message());
    }
    if (args_.repro) fmt::print("    {}\n", Repro(problem, contender));
  }

  Json ContenderJson(const Problem& problem, const Contender& contender) const {
    Json json = {{"kernel", contender.spec.kernel->id()},
                 {"swizzle", contender.spec.swizzle},
                 {"splits", contender.spec.splits},
                 {"choice", contender.is_choice}};
    if (contender.timed()) {
      const double time_us = contender.MedianUs();
      json["time_us"] = Number(time_us);
      json["spread_us"] = Number(contender.SpreadUs());
      json["samples"] = contender.samples_us.size();
      json["gflops"] = Number(Operations(problem.desc) / time_us / 1e3);
      json["gbps"] = Number(MinimumBytes(problem.desc) / time_us / 1e3);
      json["roofline_share"] = Number(RooflineUs(problem.desc, rates_) / time_us);
      json["relative_l2"] = Number(contender.error.relative_l2);
      json["max_over_bound"] = Number(contender.error.max_over_bound);
    }
    if (!contender.status.ok()) {
      json["error"] = {{"code", ToString(contender.status.code())},
                       {"message", contender.status.message()}};
    }
    json["repro"] = Repro(problem, contender);
    return json;
  }

  std::string DeviceLine() const {
    const DeviceInfo& device = session_.gemm.device();
    return fmt::format("{}, {} {}; reads {:.1f} GB/s, computes {:.0f} GFLOP/s in F32 ({})",
                       device.name, device.units, device.arch == 0 ? "threads" : "SMs",
                       rates_.read_gbps, rates_.gflops,
                       rates_.measured ? "measured in this run" : "typical");
  }

  std::string Summary() const {
    std::string text;
    if (!args_.regret) text = "* what the engine launches\n";
    if (left_out_ > 0) text += fmt::format("{} problems left out by the budget\n", left_out_);
    if (regrets_ > 0) {
      text += fmt::format(
          "regret {:.3f}: the untuned choice's time over the best kernel's, geometric mean of {} "
          "problems; worst {:.2f} at {}\n",
          GeometricMeanRegret(), regrets_, worst_regret_, worst_problem_);
    }
    return text;
  }

  Json Document() const {
    const DeviceInfo& device = session_.gemm.device();
    Json document = {{"device", device.device_class},
                     {"name", device.name},
                     {"units", device.units},
                     {"rates",
                      {{"read_gbps", Number(rates_.read_gbps)},
                       {"gflops", Number(rates_.gflops)},
                       {"measured", rates_.measured}}},
                     {"left_out", left_out_},
                     {"interrupted", InterruptSignal() != 0},
                     {"problems", documents_}};
    if (regrets_ > 0) {
      document["regret"] = {{"geometric_mean", Number(GeometricMeanRegret())},
                            {"problems", regrets_},
                            {"worst", Number(worst_regret_)},
                            {"worst_problem", worst_problem_}};
    }
    return document;
  }

  const BenchArgs& args_;
  Session session_;
  const HardwareRates rates_;
  const std::vector<Problem> problems_;
  const double start_s_;
  Table table_;
  Progress progress_;
  std::size_t done_ = 0;
  int left_out_ = 0;
  bool failed_ = false;
  Json documents_ = Json::array();
  double log_regret_ = 0, worst_regret_ = 0;
  int regrets_ = 0;
  std::string worst_problem_;
};

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
    fmt::print(
        "a plan's launch of a kernel that does nothing: {}; the kernel called directly: {}\n",
        ShownTime(overhead->plan_us), ShownTime(overhead->kernel_us));
  }
  return kSuccess;
}

int RunBench(const BenchArgs& args) {
  const bool json = args.common.json;
  if (const std::string misuse = args.Misuse(); !misuse.empty()) return Misuse(misuse);
  if (args.launch_overhead) return RunLaunchOverhead(args);
  Result<Session> session = OpenSession(args.common, args.regret ? nullptr : &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  auto problems = args.problems.Load(session->gemm.device().arch);
  if (!problems.ok()) return Fail(problems.status(), json);
  const Result<HardwareRates> rates = RatesOf(session->gemm.device());
  if (!rates.ok()) return Fail(rates.status(), json);
  return Bench(args, *std::move(session), *rates, *std::move(problems)).Run();
}

}  // namespace

void AddBench(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<BenchArgs>();
  CLI::App& command =
      *app.add_subcommand("bench", "Time kernels side by side and check their results");
  args->problems.AddTo(command);
  command
      .add_option("--kernels", args->kernels,
                  "best (the choice and three more), all, or ids and beginnings of ids "
                  "separated by commas")
      ->capture_default_str();
  command.add_option("--rounds", args->rounds, "Samples of each kernel")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_option("--budget", args->budget_s, "Seconds at most, for all problems together")
      ->check(CLI::PositiveNumber);
  command.add_flag("--repro", args->repro, "Print below each line the command that repeats it");
  command.add_flag("--regret", args->regret,
                   "Time all kernels; how far is the untuned choice from the best?");
  command.add_flag("--launch-overhead", args->launch_overhead,
                   "Time only a plan's launch of a kernel that does nothing");
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.callback([args, &chosen] { chosen = [args] { return RunBench(*args); }; });
}

}  // namespace culet::cli
