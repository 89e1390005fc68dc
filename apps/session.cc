#include "session.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "output.h"

namespace culet::cli {
namespace {

// Returns whether the file is a cache, or none yet.
bool LoadCache(const CacheFile& file, DispatchCache& cache) {
  const Result<ImportReport> report = file.Load(cache);
  if (!report.ok()) {
    Note(fmt::format("the cache is not used: {}", report.status().message()));
    return false;
  }
  const bool clean = report->other_device + report->unknown_kernel + report->infeasible +
                         report->other_version + report->damaged ==
                     0;
  if (!clean) {
    Note(fmt::format("cache {}: {}; what is not used stays in the file", file.path(),
                     report->ToString()));
  }
  return true;
}

}  // namespace

void CommonArgs::AddTo(CLI::App& command) {
  command.add_flag("--json", json, "Print one JSON document");
  command.add_option("--threads", threads, "CPU threads; default: all the process may use")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command.add_option("--device", device, "cpu, cuda or cuda:N")
      ->type_name("DEVICE")
      ->capture_default_str();
}

Status CommonArgs::Apply() const { return threads > 0 ? SetHostThreads(threads) : OkStatus(); }

void AddBudget(CLI::App& command, double* seconds, const std::string& description) {
  command.add_option("--budget", *seconds, description)
      ->type_name("SECONDS")
      ->check([](const std::string& text) {
        double value = 0;
        const bool valid = CLI::detail::lexical_cast(text, value) && value > 0;
        return valid ? std::string() : text + " is not a number of seconds above 0";
      });
}

void CacheArgs::AddTo(CLI::App& command) {
  command
      .add_option("--cache", path,
                  "The cache file, or off; default: CULET_CACHE, else "
                  "~/.cache/culet/dispatch.jsonl")
      ->type_name("FILE");
}

Result<Session> OpenSession(const CommonArgs& common, const CacheArgs* cache,
                            const HardwareRates& rates) {
  CULET_RETURN_IF_ERROR(common.Apply());
  Result<Gemm> gemm = Gemm::Create({common.device, rates});
  if (!gemm.ok()) return gemm.status();
  Session session{std::move(*gemm), std::nullopt};
  if (cache == nullptr) return session;
  const Result<std::string> path = CacheFile::DefaultPath(cache->path);
  if (!path.ok()) {
    Note(path.status().message());
  } else if (!path->empty()) {
    session.file.emplace(*path);
    session.file_is_readable = LoadCache(*session.file, session.gemm.cache());
  }
  return session;
}

Status CheckThatResultsCanBeSaved(const Session& session) {
  if (!session.file) return {};
  const char* const way_out = "give --cache another file, or --cache off to keep no results";
  if (!session.file_is_readable) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("nothing was measured, because results could not be saved in {}; {}",
                              session.file->path(), way_out));
  }
  // Saving no records changes nothing in the file, and fails where a later save would.
  const Result<int> saved = session.file->Save(DispatchCache({}, "none"));
  if (saved.ok()) return {};
  return Status(saved.status().code(),
                fmt::format("nothing was measured: {}; {}", saved.status().message(), way_out));
}

Status SaveResults(Session& session) {
  if (!session.file) return {};
  const Result<int> saved = session.file->Save(session.gemm.cache());
  if (saved.ok()) return {};
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(ignored);
  const std::string rescue = (folder / fmt::format("culet-{}.jsonl", getpid())).string();
  session.file.emplace(rescue);
  const Result<int> rescued = session.file->Save(session.gemm.cache());
  Note(rescued.ok() ? fmt::format("{}; the results are in {}", saved.status().message(), rescue)
                    : fmt::format("{}; nor could {} be written", saved.status().message(), rescue));
  return saved.status();
}

}  // namespace culet::cli
