#include "cache_tools.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "contenders.h"
#include "culet/cache_tools.h"
#include "culet/gemm.h"
#include "interrupt.h"
#include "progress.h"
#include "session.h"

namespace culet::cli {
namespace {

struct MergeArgs {
  bool json = false;
  std::vector<std::string> files;
  std::string output;
};

int RunMerge(const MergeArgs& args) {
  const InterruptGuard guard;
  std::string output = args.output;
  if (output.empty()) {
    const Result<std::string> path = CacheFile::DefaultPath();
    if (!path.ok()) return Fail(path.status(), args.json);
    output = *path;
  }
  if (output.empty()) return Misuse("the cache is off; name the file to merge into with --output");
  const auto report = MergeCaches(args.files, output, WaitAloud());
  if (!report.ok()) return Fail(report.status(), args.json);
  if (args.json) {
    PrintJson({{"file", output},
               {"records", report->records},
               {"added", report->added},
               {"replaced", report->replaced},
               {"kept", report->kept},
               {"damaged", report->damaged}});
  } else {
    Print("{}: {}; {} added, {} replaced by better ones, {} not better than what was there{}\n",
          output, Counted(static_cast<std::size_t>(report->records), "record"), report->added,
          report->replaced, report->kept,
          report->damaged > 0 ? fmt::format(", {} damaged and left out", report->damaged) : "");
  }
  return kSuccess;
}

struct DiffArgs {
  bool json = false;
  std::string first, second;
  bool times = false;
};

int RunDiff(const DiffArgs& args) {
  auto differences = DiffCaches(args.first, args.second);
  if (!differences.ok()) return Fail(differences.status(), args.json);
  using Kind = CacheDifference::Kind;
  bool differ = false;
  Table table({{"problem"},
               {"difference"},
               {"first"},
               {"time", Table::Align::kRight},
               {"second"},
               {"time", Table::Align::kRight},
               {"device"}});
  Json list = Json::array();
  std::map<Kind, int> counts;
  for (const CacheDifference& difference : *differences) {
    ++counts[difference.kind];
    if (difference.kind == Kind::kOtherTime && !args.times) continue;
    differ = true;
    const auto kernel = [](const std::optional<CacheFile::Record>& record) {
      return record ? ShownKernel(*record) : std::string("-");
    };
    const auto time = [](const std::optional<CacheFile::Record>& record) {
      return record ? ShownTimeOrDash(record->time_us) : std::string("-");
    };
    const CacheFile::Record& any = difference.first ? *difference.first : *difference.second;
    table.Add({any.problem, ToString(difference.kind), kernel(difference.first),
               time(difference.first), kernel(difference.second), time(difference.second),
               any.device_class});
    list.push_back({{"difference", ToString(difference.kind)},
                    {"first", difference.first ? ToJson(*difference.first) : Json(nullptr)},
                    {"second", difference.second ? ToJson(*difference.second) : Json(nullptr)}});
  }
  if (args.json) {
    PrintJson({{"first", args.first}, {"second", args.second}, {"differences", list}});
  } else {
    if (differ) Print("{}", table.ToString());
    Print(
        "{} only in the first, {} only in the second, {} with another choice, {} with the same "
        "choice and another time\n",
        counts[Kind::kOnlyInFirst], counts[Kind::kOnlyInSecond], counts[Kind::kOtherLaunch],
        counts[Kind::kOtherTime]);
  }
  return differ ? kFailure : kSuccess;
}

// The file that a command names, or the one that is used.
Result<std::string> FileOf(const std::string& named) {
  Result<std::string> path = CacheFile::DefaultPath(named);
  if (path.ok() && path->empty()) {
    return Status(StatusCode::kNotFound, "the cache is off; name a file");
  }
  return path;
}

struct VerifyArgs {
  CommonArgs common;
  std::string file;
  bool launch = false;
};

// Whether the record's launch gives the right result today.
Status Launch(Gemm& gemm, const CheckedRecord& record) {
  std::vector<Contender> contenders(1);
  contenders[0].spec = record.spec;
  MeasureOptions options;
  options.rounds = 1;
  options.stop = [] { return InterruptSignal() != 0; };
  CULET_RETURN_IF_ERROR(MeasureContenders(gemm, record.record.desc, options, contenders));
  return contenders[0].status;
}

int RunCacheVerify(const VerifyArgs& args) {
  const bool json = args.common.json;
  Result<Session> session = OpenSession(args.common, nullptr);
  if (!session.ok()) return Fail(session.status(), json);
  const auto path = FileOf(args.file);
  if (!path.ok()) return Fail(path.status(), json);
  const auto records = CheckCache(*path, session->gemm.cache());
  if (!records.ok()) return Fail(records.status(), json);
  const InterruptGuard guard;
  Progress progress;
  Json list = Json::array();
  std::map<Usability, int> counts;
  int wrong = 0, launched = 0;
  for (const CheckedRecord& record : *records) {
    ++counts[record.usability];
    Status status;
    if (record.usability != Usability::kUsable) {
      const bool fault = record.usability == Usability::kDamaged ||
                         record.usability == Usability::kInfeasible ||
                         record.usability == Usability::kUnknownKernel;
      if (!json && fault) {
        Print("line {}: {}{}{}\n", record.record.line, ToString(record.usability),
              record.reason.empty() ? "" : ": ", record.reason);
      }
    } else if (args.launch && InterruptSignal() == 0) {
      progress.Update(static_cast<double>(launched) / static_cast<double>(records->size()),
                      record.record.problem);
      status = Launch(session->gemm, record);
      ++launched;
      if (!status.ok() && InterruptSignal() == 0) {
        ++wrong;
        progress.Clear();
        if (!json) {
          Print("line {}: WRONG: {}: {}\n", record.record.line, record.record.problem,
                status.message());
        }
      }
    }
    list.push_back({{"line", record.record.line},
                    {"usability", ToString(record.usability)},
                    {"reason", record.reason.empty() ? Json(nullptr) : Json(record.reason)},
                    {"error", status.ok() ? Json(nullptr) : Json(status.message())}});
  }
  progress.Clear();
  if (json) {
    PrintJson({{"file", *path},
               {"device", session->gemm.device().device_class},
               {"launched", launched},
               {"wrong", wrong},
               {"records", list}});
  } else {
    std::string text = fmt::format("{}: {}", *path, Counted(records->size(), "record"));
    for (const auto& [usability, count] : counts) {
      text += fmt::format(", {} {}", count, ToString(usability));
    }
    if (args.launch) text += fmt::format("; {} launched, {} wrong", launched, wrong);
    Print("{}\n", text);
  }
  if (InterruptSignal() != 0) return InterruptExitCode();
  const bool sound = counts[Usability::kDamaged] + counts[Usability::kInfeasible] +
                         counts[Usability::kUnknownKernel] + wrong ==
                     0;
  return sound ? kSuccess : kFailure;
}

struct GcArgs {
  CommonArgs common;
  std::string file;
  bool dry_run = false, other_devices = false;
  int older_than_days = 0;
};

int RunGc(const GcArgs& args) {
  const bool json = args.common.json;
  Result<Session> session = OpenSession(args.common, nullptr);
  if (!session.ok()) return Fail(session.status(), json);
  const auto path = FileOf(args.file);
  if (!path.ok()) return Fail(path.status(), json);
  const InterruptGuard guard;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto remove = [&](const CheckedRecord& record) {
    constexpr std::int64_t kDay = 86'400;
    if (args.older_than_days > 0 && record.usability != Usability::kOtherVersion &&
        now - record.record.when > args.older_than_days * kDay) {
      return true;
    }
    switch (record.usability) {
      case Usability::kUnknownKernel:
      case Usability::kOtherProvider:
      case Usability::kInfeasible:
        return true;
      case Usability::kOtherDevice:
        return args.other_devices;
      default:
        return false;
    }
  };
  const auto report = PruneCache(*path, session->gemm.cache(), remove, args.dry_run, WaitAloud());
  if (!report.ok()) return Fail(report.status(), json);
  Json list = Json::array();
  for (const CheckedRecord& record : report->removed) {
    list.push_back({{"line", record.record.line},
                    {"problem", record.record.problem},
                    {"usability", ToString(record.usability)},
                    {"reason", record.reason.empty() ? Json(nullptr) : Json(record.reason)}});
    if (!json) {
      Print("line {}: {}{}{}\n", record.record.line,
            record.usability == Usability::kUsable ? "old" : ToString(record.usability),
            record.reason.empty() ? "" : ": ", record.reason);
    }
  }
  if (json) {
    PrintJson(
        {{"file", *path}, {"dry_run", args.dry_run}, {"kept", report->kept}, {"removed", list}});
  } else {
    Print("{}: {} {}, {} kept\n", *path, report->removed.size(),
          args.dry_run ? "would be removed" : "removed", report->kept);
  }
  return kSuccess;
}

constexpr const char* kDefaultFile = "Default: CULET_CACHE, else ~/.cache/culet/dispatch.jsonl";

}  // namespace

void AddCacheTools(const Command& cache) {
  auto merge = std::make_shared<MergeArgs>();
  const Command merging = cache.AddCommand("merge", "Merge cache files into one");
  merging.Add("FILES", merge->files, "The files whose records are added").Required();
  merging
      .Add("--output", merge->output,
           "The file that they are merged into; " + std::string("default: the one that is used"))
      .Type("FILE");
  merging.AddFlag("--json", merge->json, "Print one JSON document");
  merging.Runs([merge] { return RunMerge(*merge); });

  auto diff = std::make_shared<DiffArgs>();
  const Command differing =
      cache.AddCommand("diff", "Compare two cache files; exit code 1 where choices differ");
  differing.Add("FIRST", diff->first, "A cache file").Required();
  differing.Add("SECOND", diff->second, "Another").Required();
  differing.AddFlag("--times", diff->times, "Show also where the same choice took another time");
  differing.AddFlag("--json", diff->json, "Print one JSON document");
  differing.Runs([diff] { return RunDiff(*diff); });

  auto verify = std::make_shared<VerifyArgs>();
  const Command verifying = cache.AddCommand(
      "verify", "Check every record: its checksum, its kernel, with --launch its result");
  verifying.Add("FILE", verify->file, kDefaultFile);
  verifying.AddFlag("--launch", verify->launch,
                    "Launch each usable record and compare with the reference");
  verify->common.AddTo(verifying);
  verifying.Runs([verify] { return RunCacheVerify(*verify); });

  auto gc = std::make_shared<GcArgs>();
  const Command collecting = cache.AddCommand(
      "gc", "Remove records that this version cannot use on this device, and damaged lines");
  collecting.Add("FILE", gc->file, kDefaultFile);
  collecting.AddFlag("--dry-run", gc->dry_run, "Only say what would be removed");
  collecting.AddFlag("--other-devices", gc->other_devices,
                     "Remove also the records of other devices");
  collecting.Add("--older-than", gc->older_than_days, "Remove also what was measured longer ago")
      .Type("DAYS")
      .Range(1, 100'000);
  gc->common.AddTo(collecting);
  collecting.Runs([gc] { return RunGc(*gc); });
}

}  // namespace culet::cli
