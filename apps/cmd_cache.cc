// culet cache ls: the records of a cache file, and what this machine can use of them.
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cache_tools.h"
#include "commands.h"
#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/registry.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

bool Noisy(const CacheFile::Record& record) {
  return record.origin == Origin::kMeasured && IsNoisy(record.time_us, record.spread_us);
}

}  // namespace

std::string ShownKernel(const CacheFile::Record& record) {
  std::string text = record.kernel_id;
  if (record.swizzle != 0) text += fmt::format(" swizzle {}", record.swizzle);
  if (record.splits != 1) text += fmt::format(" splits {}", record.splits);
  if (record.variant != 0) text += fmt::format(" variant {}", record.variant);
  if (record.serial) text += " serial";
  return text;
}

Json ToJson(const CacheFile::Record& record) {
  if (!record.damage.empty()) return {{"line", record.line}, {"damage", record.damage}};
  return {{"line", record.line},
          {"device", record.device_class},
          {"problem", record.problem},
          {"m", record.desc.m},
          {"n", record.desc.n},
          {"k", record.desc.k},
          {"kernel", record.kernel_id},
          {"swizzle", record.swizzle},
          {"splits", record.splits},
          {"serial", record.serial},
          {"variant", record.variant},
          {"provider_version", record.provider_version},
          {"time_us", Number(record.time_us)},
          {"spread_us", Number(record.spread_us)},
          {"noisy", Noisy(record)},
          {"baseline_us", Number(record.baseline_us)},
          {"origin", ToString(record.origin)},
          {"when", record.when},
          {"library_version", record.library_version}};
}

namespace {

struct CacheLsArgs {
  CommonArgs common;
  std::string file;
};

// "2026-11-21 08:15" in UTC; "-" when unknown.
std::string ShownDate(std::int64_t unix_seconds) {
  const std::time_t time = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  char text[32];
  if (unix_seconds <= 0 || gmtime_r(&time, &utc) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc) == 0) {
    return "-";
  }
  return text;
}

std::string ShownGain(const CacheFile::Record& record) {
  if (record.baseline_us <= 0 || record.time_us <= 0) return "-";
  return fmt::format("{:.2f}", record.baseline_us / record.time_us);
}

std::string ShownOrigin(const CacheFile::Record& record) {
  return Noisy(record) ? "measured, noisy" : ToString(record.origin);
}

std::string ToTable(const std::vector<CacheFile::Record>& records) {
  Table table({{"line", Table::Align::kRight},
               {"problem"},
               {"kernel"},
               {"time", Table::Align::kRight},
               {"spread", Table::Align::kRight},
               {"x default", Table::Align::kRight},
               {"origin"},
               {"when (UTC)"},
               {"device"}});
  for (const CacheFile::Record& record : records) {
    if (!record.damage.empty()) {
      table.Add(
          {std::to_string(record.line), "damaged: " + record.damage, "", "", "", "", "", "", ""});
      continue;
    }
    table.Add({std::to_string(record.line), record.problem, ShownKernel(record),
               ShownTimeOrDash(record.time_us), ShownTimeOrDash(record.spread_us),
               ShownGain(record), ShownOrigin(record), ShownDate(record.when),
               record.device_class});
  }
  return table.ToString();
}

int RunCacheLs(const CacheLsArgs& args) {
  const bool json = args.common.json;
  if (const Status status = args.common.Apply(); !status.ok()) return Fail(status, json);
  const Result<DeviceInfo> device = FindDevice(args.common.device);
  if (!device.ok()) return Fail(device.status(), json);
  const Result<std::string> path = CacheFile::DefaultPath(args.file);
  if (!path.ok()) return Fail(path.status(), json);
  if (path->empty()) {
    return Fail(Status(StatusCode::kNotFound, "the cache is off; name a file: culet cache ls FILE"),
                json);
  }
  const CacheFile file(*path);
  const auto records = file.List();
  if (!records.ok()) return Fail(records.status(), json);

  // What this machine can use of it: load it as a command would.
  const Result<Registry> registry = Registry::Builtin(*device, args.common.providers);
  if (!registry.ok()) return Fail(registry.status(), json);
  DispatchCache cache(registry->kernels(), device->device_class);
  const Result<ImportReport> report = file.Load(cache);
  if (!report.ok()) return Fail(report.status(), json);
  if (json) {
    Json list = Json::array();
    for (const CacheFile::Record& record : *records) list.push_back(ToJson(record));
    PrintJson({{"file", *path},
               {"device", device->device_class},
               {"report",
                {{"used", report->used},
                 {"outdated", report->outdated},
                 {"other_device", report->other_device},
                 {"unknown_kernel", report->unknown_kernel},
                 {"unavailable", report->unavailable},
                 {"other_provider", report->other_provider},
                 {"infeasible", report->infeasible},
                 {"other_version", report->other_version},
                 {"damaged", report->damaged}}},
               {"records", list}});
  } else {
    if (!records->empty()) Print("{}", ToTable(*records));
    Print("{}; on this machine ({}): {}\n", Counted(records->size(), "record"),
          device->device_class, report->ToString());
  }
  return kSuccess;
}

}  // namespace

void AddCache(const Command& program) {
  auto args = std::make_shared<CacheLsArgs>();
  const Command cache = program.AddCommand("cache", "Look into cache files");
  AddCacheTools(cache);
  const Command command = cache.AddCommand("ls", "List the records of a cache file");
  command.Add("FILE", args->file, "Default: CULET_CACHE, else ~/.cache/culet/dispatch.jsonl");
  args->common.AddTo(command);
  command.Runs([args] { return RunCacheLs(*args); });
}

}  // namespace culet::cli
