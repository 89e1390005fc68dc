// culet tune: measures the kernels for each problem and remembers the winners.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "budget.h"
#include "commands.h"
#include "culet/exchange_choice.h"
#include "culet/gemm.h"
#include "culet/untuned.h"
#include "interrupt.h"
#include "output.h"
#include "problem_args.h"
#include "progress.h"
#include "session.h"
#include "team_args.h"

namespace culet::cli {
namespace {

struct TuneArgs {
  CommonArgs common;
  CacheArgs cache;
  ProblemArgs problems;
  TeamArgs team;
  std::string from;
  double budget_s = 0;
  bool force = false;
};

struct Outcome {
  enum Kind { kTuned, kKnown, kLeftOut, kInterrupted, kFailed } kind = kLeftOut;
  TuneReport report;  ///< of kTuned and kKnown
  Status error;       ///< of kFailed
};

const char* ToString(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::kTuned:
      return "tuned";
    case Outcome::kKnown:
      return "measured before";
    case Outcome::kLeftOut:
      return "left out by the budget";
    case Outcome::kInterrupted:
      return "interrupted";
    case Outcome::kFailed:
      break;
  }
  return "failed";
}

class Tuning {
 public:
  Tuning(const TuneArgs& args, Session session, std::vector<Problem> problems)
      : args_(args),
        session_(std::move(session)),
        problems_(std::move(problems)),
        budget_(args.budget_s),
        table_(Columns()) {
    for (const Problem& problem : problems_) to_measure_ += MustBeMeasured(problem);
  }

  // Whether what will be measured can be kept. Errors: as CheckThatResultsCanBeSaved.
  Status Check() const {
    return to_measure_ > 0 ? CheckThatResultsCanBeSaved(session_) : OkStatus();
  }

  int Run() {
    const InterruptGuard guard;
    if (!args_.common.json) PrintText(table_.Header());
    for (const Problem& problem : problems_) {
      outcomes_.push_back(InterruptSignal() != 0 ? Outcome{Outcome::kInterrupted, {}, {}}
                                                 : TuneOne(problem));
      if (outcomes_.back().kind == Outcome::kTuned) {
        // After each problem, so that whatever ends this process loses none of them.
        if (const Status saved = SaveResults(session_); !saved.ok()) save_error_ = saved;
      }
      progress_.Clear();
      // After Ctrl-C only the summary speaks of the problems that were not reached.
      if (!args_.common.json && outcomes_.back().kind != Outcome::kInterrupted) {
        PrintRow(problem, outcomes_.back());
      }
    }
    if (args_.common.json) {
      PrintJson(Document());
    } else {
      PrintText(Summary());
    }
    if (InterruptSignal() != 0) {
      Note("interrupted; finished results are kept");
      return InterruptExitCode();
    }
    return Count(Outcome::kFailed) != 0 || !save_error_.ok() ? kFailure : kSuccess;
  }

 private:
  bool MustBeMeasured(const Problem& problem) {
    if (args_.force) return true;
    const auto known = session_.gemm.cache().Find(problem.desc);
    return !known || known->origin != Origin::kMeasured || IsNoisy(*known);
  }

  Outcome TuneOne(const Problem& problem) {
    Outcome outcome;
    TuneOptions options;
    options.force = args_.force;
    if (MustBeMeasured(problem)) {
      if (budget_.exhausted()) return outcome;
      options.tuner.budget_s = budget_.ShareOf(to_measure_--);
    }
    const double start_s = budget_.elapsed_s();
    options.stop = [] { return InterruptSignal() != 0; };
    options.on_progress = [&](double share, const LaunchSpec& current) {
      ShowProgress(problem, share, current);
      return InterruptSignal() == 0;
    };
    Result<TuneReport> report = session_.gemm.Tune(problem.desc, options);
    if (report.ok() && report->from_cache) {
      outcome.kind = Outcome::kKnown;
    } else if (report.ok() && report->complete) {
      outcome.kind = Outcome::kTuned;
    } else if (InterruptSignal() != 0) {
      outcome.kind = Outcome::kInterrupted;
    } else if (report.status().code() == StatusCode::kResourceExhausted && budget_.limited() &&
               (budget_.elapsed_s() - start_s >= options.tuner.budget_s ||
                !Fits(problem, options.tuner.budget_s))) {
      outcome.kind = Outcome::kLeftOut;
      outcome.error = report.status();
    } else {
      outcome.kind = Outcome::kFailed;
      outcome.error = report.status();
    }
    if (report.ok()) outcome.report = *std::move(report);
    return outcome;
  }

  // Whether a sample of the default may be begun at all.
  bool Fits(const Problem& problem, double budget_s) {
    const auto choice = session_.gemm.Choose(problem.desc);
    return choice.ok() && 2e-6 * choice->time_us < budget_s;
  }

  void ShowProgress(const Problem& problem, double share, const LaunchSpec& current) {
    const double done = static_cast<double>(outcomes_.size());
    const double all = static_cast<double>(problems_.size());
    progress_.Update((done + share) / all,
                     fmt::format("{}/{} {}  {}", outcomes_.size() + 1, problems_.size(),
                                 Label(problem), current.kernel->id()));
  }

  std::vector<Table::Column> Columns() {
    std::vector<Table::Column> columns = ProblemColumns(problems_);
    std::size_t widest = 0;
    for (const Kernel* kernel : session_.gemm.registry().kernels()) {
      widest = std::max(widest, kernel->id().size());
    }
    columns.push_back({"winner", Table::Align::kLeft, widest});
    columns.push_back({"time", Table::Align::kRight, 7});
    columns.push_back({"default", Table::Align::kRight, 7});
    columns.push_back({"gain", Table::Align::kRight, 6});
    columns.push_back({"samples", Table::Align::kRight, 7});
    columns.push_back({""});
    return columns;
  }

  void PrintRow(const Problem& problem, const Outcome& outcome) {
    std::vector<std::string> cells = ProblemCells(problem);
    const LaunchSpec& winner = outcome.report.winner;
    const bool known = outcome.kind == Outcome::kTuned || outcome.kind == Outcome::kKnown;
    cells.push_back(known ? winner.kernel->id() : "-");
    cells.push_back(known ? ShownTimeOrDash(winner.time_us) : "-");
    cells.push_back(known ? ShownTimeOrDash(winner.baseline_us) : "-");
    cells.push_back(known && winner.baseline_us > 0
                        ? fmt::format("{:.2f} x", winner.baseline_us / winner.time_us)
                        : "-");
    cells.push_back(std::to_string(outcome.report.measurements));
    const bool noisy = outcome.kind == Outcome::kTuned && IsNoisy(winner);
    cells.push_back(noisy                             ? "noisy: tune again"
                    : outcome.kind == Outcome::kTuned ? ""
                    : outcome.kind == Outcome::kKnown ? Known(problem)
                                                      : ToString(outcome.kind));
    PrintText(table_.Row(cells));
    if (!outcome.error.ok()) Print("    {}\n", outcome.error.message());
    for (const Dropped& dropped : outcome.report.dropped) {
      // Slow candidates are not reported, wrong or failing ones are.
      if (dropped.reason.code() == StatusCode::kResourceExhausted) continue;
      Print("    dropped {}: {}\n", dropped.spec.kernel->id(), dropped.reason.message());
    }
    std::fflush(stdout);
  }

  // Whose measurement it was.
  std::string Known(const Problem& problem) {
    const auto layer = session_.gemm.cache().LayerOf(problem.desc);
    const char* const known = ToString(Outcome::kKnown);
    if (!layer || *layer == CacheLayer::kUser) return known;
    return fmt::format("{} ({})", known, ToString(*layer));
  }

  int Count(Outcome::Kind kind) const {
    int count = 0;
    for (const Outcome& outcome : outcomes_) count += outcome.kind == kind;
    return count;
  }

  int Measurements() const {
    int measurements = 0;
    for (const Outcome& outcome : outcomes_) measurements += outcome.report.measurements;
    return measurements;
  }

  std::string Summary() const {
    std::string text = Counted(problems_.size(), "problem");
    for (const auto kind : {Outcome::kTuned, Outcome::kKnown, Outcome::kLeftOut,
                            Outcome::kInterrupted, Outcome::kFailed}) {
      if (const int count = Count(kind); count > 0) {
        text += fmt::format(", {} {}", count, ToString(kind));
      }
    }
    text += fmt::format("; {} measurements in {:.1f} s", Measurements(), budget_.elapsed_s());
    if (Count(Outcome::kTuned) > 0) {
      text += !session_.saved_in.empty() ? "; saved in " + session_.saved_in
              : session_.file            ? "; not saved"
                                         : "; not saved (cache off)";
    }
    return text + '\n';
  }

  Json Document() const {
    Json list = Json::array();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const Outcome& outcome = outcomes_[i];
      Json entry = ToJson(problems_[i]);
      entry["outcome"] = ToString(outcome.kind);
      entry["measurements"] = outcome.report.measurements;
      if (outcome.report.winner.kernel != nullptr) entry["winner"] = ToJson(outcome.report.winner);
      if (!outcome.error.ok()) entry["error"] = outcome.error.message();
      Json standings = Json::array();
      for (const LaunchSpec& spec : outcome.report.standings) standings.push_back(ToJson(spec));
      Json dropped = Json::array();
      for (const Dropped& d : outcome.report.dropped) {
        dropped.push_back({{"kernel", d.spec.kernel->id()}, {"reason", d.reason.message()}});
      }
      entry["standings"] = std::move(standings);
      entry["dropped"] = std::move(dropped);
      list.push_back(std::move(entry));
    }
    return {{"device", session_.gemm.device().device_class},
            {"cache", session_.file ? Json(session_.file->path()) : Json(nullptr)},
            {"saved_in", session_.saved_in.empty() ? Json(nullptr) : Json(session_.saved_in)},
            {"save_error", save_error_.ok() ? Json(nullptr) : Json(save_error_.message())},
            {"measurements", Measurements()},
            {"interrupted", InterruptSignal() != 0},
            {"problems", std::move(list)}};
  }

  const TuneArgs& args_;
  Session session_;
  const std::vector<Problem> problems_;
  const Budget budget_;
  Table table_;
  Progress progress_;
  std::vector<Outcome> outcomes_;
  std::size_t to_measure_ = 0;
  Status save_error_;
};

// The format whose types the problem has; of others, which have no name, the nearest.
Format FormatOf(const GemmDesc& desc) {
  for (const Format format : {Format::kFp8Block, Format::kFp8Row, Format::kFp8Tensor, Format::kBf16,
                              Format::kF16, Format::kF32, Format::kF32Bf16, Format::kF32F16,
                              Format::kU4, Format::kMxfp4, Format::kInt8, Format::kW8}) {
    const auto made = MakeDesc(format, desc.m, desc.n, desc.k, desc.arch);
    if (made.ok() && made->a.type == desc.a.type && made->b.type == desc.b.type &&
        made->b.quant.type == desc.b.quant.type) {
      return format;
    }
  }
  return desc.a.type == DataType::kFloat32 ? Format::kF32 : Format::kBf16;
}

// What CULET_RECORD wrote down on this device.
Result<std::vector<Problem>> LoadUntuned(const std::string& path, const DeviceInfo& device) {
  const auto file = ReadUntuned(path);
  if (!file.ok()) return file.status();
  std::vector<Problem> problems;
  std::size_t others = 0;
  for (const UntunedProblem& untuned : file->problems) {
    if (untuned.device_class != device.device_class) {
      ++others;
      continue;
    }
    Problem problem;
    problem.format = FormatOf(untuned.desc);
    problem.desc = untuned.desc;
    const auto plain = MakeDesc(problem.format, untuned.desc.m, untuned.desc.n, untuned.desc.k,
                                untuned.desc.arch, untuned.desc.d.type);
    // What the columns do not say.
    if (!plain.ok() || *plain != untuned.desc) problem.name = ToString(untuned.desc);
    problems.push_back(std::move(problem));
  }
  if (others > 0) {
    Note(fmt::format("{}: {} of other devices left out", path, Counted(others, "problem")));
  }
  if (file->unreadable > 0) {
    Note(fmt::format("{}: {} that cannot be read left out", path,
                     Counted(static_cast<std::size_t>(file->unreadable), "line")));
  }
  return problems;
}

std::string Shown(double us) { return us < 0 ? "-" : fmt::format("{:.2f}", us); }

// How the ranks' GPUs make their sums, measured on them and kept.
int TuneSums(const TuneArgs& args) {
  const bool json = args.common.json;
  // Before other ranks begin, which would say so, too.
  if (const Status ways = CheckSums(args.common.device); !ways.ok()) return Fail(ways, json);
  const TeamModel model = TeamModelOf(args.team, args.common, &args.cache, "");
  if (const auto served = args.team.Serve(model, json)) return *served;
  Result<Session> session = OpenSession(args.common, &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  if (const Status saved = CheckThatResultsCanBeSaved(*session); !saved.ok()) {
    return Fail(saved, json);
  }
  auto team = args.team.Start();
  if (!team.ok()) return Fail(team.status(), json);
  const auto tuned = (*team)->Tune(model);
  if (!tuned.ok()) return Fail(tuned.status(), json);
  const std::string& device = session->gemm.device().device_class;
  const Status saved = SaveExchange(model.cache, device, args.team.size(), tuned->choice);
  if (json) {
    Json times = Json::array();
    for (const ExchangeTimes& each : tuned->times) {
      const auto known = [](double us) { return us < 0 ? Json(nullptr) : Json(us); };
      times.push_back({{"bytes", each.bytes},
                       {"push_us", known(each.push)},
                       {"two_shots_us", known(each.two_shots)},
                       {"nccl_us", known(each.nccl)}});
    }
    PrintJson({{"device", device},
               {"ranks", args.team.size()},
               {"sums", ToJson(tuned->choice)},
               {"times", std::move(times)},
               {"save_error", saved.ok() ? Json(nullptr) : Json(saved.message())}});
  } else {
    Table table({{"bytes", Table::Align::kRight, 9},
                 {"push", Table::Align::kRight, 8},
                 {"two shots", Table::Align::kRight, 9},
                 {"nccl", Table::Align::kRight, 8}});
    PrintText(table.Header());
    for (const ExchangeTimes& each : tuned->times) {
      PrintText(table.Row(
          {std::to_string(each.bytes), Shown(each.push), Shown(each.two_shots), Shown(each.nccl)}));
    }
    Print("sums of {} ranks: {}; times in us\n", args.team.size(), ToString(tuned->choice));
  }
  return saved.ok() ? kSuccess : Fail(saved, json);
}

int RunTune(const TuneArgs& args) {
  const bool json = args.common.json;
  if (args.team.given()) {
    if (args.problems.given() || !args.from.empty() || args.force || args.budget_s > 0) {
      return Misuse("--tp tunes sums over ranks; leave out problems, --from, --force and --budget");
    }
    const std::string misuse = args.team.Misuse(args.common.device);
    return misuse.empty() ? TuneSums(args) : Misuse(misuse);
  }
  if (!args.from.empty()) {
    if (args.problems.given() || args.problems.given_beside_model()) {
      return Misuse("--from names the problems; leave out --m, --n, --k, --shapes and --model");
    }
  } else if (const std::string misuse = args.problems.Misuse(); !misuse.empty()) {
    return Misuse(misuse);
  }
  Result<Session> session = OpenSession(args.common, &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  auto problems = args.from.empty() ? args.problems.Load(session->gemm.device().arch)
                                    : LoadUntuned(args.from, session->gemm.device());
  if (!problems.ok()) return Fail(problems.status(), json);
  Tuning tuning(args, *std::move(session), *std::move(problems));
  if (const Status status = tuning.Check(); !status.ok()) return Fail(status, json);
  return tuning.Run();
}

}  // namespace

void AddTune(const Command& program) {
  auto args = std::make_shared<TuneArgs>();
  const Command command =
      program.AddCommand("tune", "Measure the kernels for each problem and remember the winners");
  args->problems.AddTo(command);
  args->team.AddTo(command);
  command
      .Add("--from", args->from,
           "Measure the problems of a file that CULET_RECORD=FILE had written: those that ran "
           "without a measured choice")
      .Type("FILE");
  AddBudget(command, &args->budget_s, "Seconds at most, for all problems together");
  command.AddFlag("--force", args->force, "Measure again what was measured before");
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunTune(*args); });
}

}  // namespace culet::cli
