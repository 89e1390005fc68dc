#include "session.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "interrupt.h"
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
  const bool clean = report->other_device + report->unknown_kernel + report->unavailable +
                         report->other_provider + report->infeasible + report->other_version +
                         report->damaged ==
                     0;
  if (!clean) {
    Note(fmt::format("cache {}: {}; {}", file.path(), report->ToString(),
                     report->damaged > 0
                         ? "damaged lines move to its .damaged copy at the next save"
                         : "what is not used stays in the file"));
  }
  return true;
}

// The shipped table and the site's file. What is in them is not this user's to mend.
void LoadLayers(DispatchCache& cache) {
  for (const LoadedLayer& layer : LoadLowerLayers(cache)) {
    if (!layer.status.ok()) {
      Note(fmt::format("the {} cache is not used: {}", ToString(layer.file.layer),
                       layer.status.message()));
    }
  }
}

// The cache in a new file that nobody else can have put there, read or replaced.
Result<CacheFile> Rescue(const DispatchCache& cache) {
  std::error_code error;
  std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) temporary = "/tmp";
  std::string folder = (temporary / "culet-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return Status(StatusCode::kIo,
                  fmt::format("no folder can be made in '{}' ({})", temporary.string(),
                              std::generic_category().message(errno)));
  }
  CacheFile file((std::filesystem::path(folder) / "dispatch.jsonl").string());
  const Status saved = file.Save(cache).status();
  if (saved.ok()) return file;
  std::filesystem::remove_all(folder, error);
  return saved;
}

}  // namespace

CacheFile::SaveOptions WaitAloud() {
  CacheFile::SaveOptions options;
  options.on_wait = [told = false, most_s = options.timeout_s](const std::string& holder,
                                                               double) mutable {
    if (!told) {
      Note(fmt::format("waiting for the cache's lock, which {} holds; {:.0f} s at most", holder,
                       most_s));
    }
    told = true;
    return InterruptSignal() == 0;
  };
  return options;
}

void CommonArgs::AddTo(const Command& command) {
  command.AddFlag("--json", json, "Print one JSON document");
  command.Add("--threads", threads, "CPU threads; default: all the process may use")
      .Type("N")
      .Range(1, 1024);
  command.Add("--device", device, "cpu, cuda or cuda:N").Type("DEVICE").ShowDefault();
  command
      .Add("--providers", providers,
           "Whose kernels compete, like own,cublaslt; default: CULET_PROVIDERS, else all")
      .Type("LIST");
}

Status CommonArgs::Apply() const { return threads > 0 ? SetHostThreads(threads) : OkStatus(); }

void AddBudget(const Command& command, double* seconds, const std::string& description) {
  command.Add("--budget", *seconds, description).Type("SECONDS").AboveZero("a number of seconds");
}

void CacheArgs::AddTo(const Command& command) {
  command
      .Add("--cache", path,
           "The cache file, or off; default: CULET_CACHE, else "
           "~/.cache/culet/dispatch.jsonl")
      .Type("FILE");
}

Result<Session> OpenSession(const CommonArgs& common, const CacheArgs* cache,
                            const HardwareRates& rates) {
  CULET_RETURN_IF_ERROR(common.Apply());
  Result<Gemm> gemm = Gemm::Create({common.device, rates, common.providers});
  if (!gemm.ok()) return gemm.status();
  Session session{std::move(*gemm), std::nullopt, true, {}};
  if (cache == nullptr) return session;
  const Result<std::string> path = CacheFile::DefaultPath(cache->path);
  if (!path.ok()) {
    Note(path.status().message());
  } else if (!path->empty()) {
    LoadLayers(session.gemm.cache());
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
  const Status status = session.file->CheckSave(WaitAloud());
  if (status.ok()) return {};
  return Status(status.code(),
                fmt::format("nothing was measured: {}; {}", status.message(), way_out));
}

Status SaveResults(Session& session) {
  if (!session.file) return {};
  session.saved_in.clear();
  const Status saved = session.file->Save(session.gemm.cache(), WaitAloud()).status();
  if (saved.ok()) {
    session.saved_in = session.file->path();
    return {};
  }
  if (session.gemm.cache().Entries(CacheLayer::kUser).empty()) {  // nothing to rescue
    Note(saved.message());
    return saved;
  }
  const Result<CacheFile> rescue = Rescue(session.gemm.cache());
  if (rescue.ok()) {
    session.file = *rescue;
    session.saved_in = rescue->path();
  }
  Note(rescue.ok() ? fmt::format("{}; the results are in {}", saved.message(), rescue->path())
                   : fmt::format("{}; nor could a copy be kept: {}", saved.message(),
                                 rescue.status().message()));
  return saved;
}

}  // namespace culet::cli
