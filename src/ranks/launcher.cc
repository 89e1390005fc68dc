// RanksOfLauncher: the variables that torchrun, mpirun and srun give their processes.
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "culet/ranks.h"

namespace culet {
namespace {

struct Launcher {
  const char *rank, *size, *local;
};
// The first whose rank and size are set counts.
constexpr std::array kLaunchers = {
    Launcher{"CULET_RANK", "CULET_RANKS", "CULET_RANK"},
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    Launcher{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};
// How many of the ranks are on this host.
constexpr std::array kLocalSizes = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "MPI_LOCALNRANKS"};

std::string Get(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<int> Number(const char* name) {
  const std::string text = Get(name);
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && at == end && number >= 0) return number;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the variable {} is '{}'; it must be a number", name, text));
}

// A name that the ranks of a job share. Empty: none is known.
std::string MeetingOf(const Launcher& launcher) {
  if (const std::string given = Get("CULET_MEETING"); !given.empty()) return given;
  const std::string kind = launcher.rank;
  if (const std::string port = Get("MASTER_PORT"); !port.empty()) {
    return fmt::format("{}:{}:{}:{}", Get("MASTER_ADDR"), port, Get("TORCHELASTIC_RUN_ID"),
                       Get("TORCHELASTIC_RESTART_COUNT"));
  }
  if (kind.starts_with("OMPI_") && !Get("PMIX_NAMESPACE").empty()) return Get("PMIX_NAMESPACE");
  if (kind.starts_with("SLURM_") && !Get("SLURM_JOB_ID").empty()) {
    return fmt::format("slurm:{}:{}", Get("SLURM_JOB_ID"), Get("SLURM_STEP_ID"));
  }
  // One proxy of mpirun starts all ranks of a host.
  if (kind.starts_with("PMI_") || kind.starts_with("OMPI_")) {
    return fmt::format("mpirun:{}", getppid());
  }
  return {};
}

}  // namespace

Result<std::optional<RankOptions>> RanksOfLauncher() {
  for (const Launcher& launcher : kLaunchers) {
    const bool has_rank = !Get(launcher.rank).empty(), has_size = !Get(launcher.size).empty();
    if (std::strcmp(launcher.rank, "SLURM_PROCID") == 0 && !(has_rank && has_size)) continue;
    if (!has_rank && !has_size) continue;
    if (!has_rank || !has_size) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the variable {} is set and {} is not; ranks need both",
                                has_rank ? launcher.rank : launcher.size,
                                has_rank ? launcher.size : launcher.rank));
    }
    RankOptions options;
    const auto rank = Number(launcher.rank), size = Number(launcher.size);
    if (!rank) return rank.status();
    if (!size) return size.status();
    options.rank = options.local_rank = *rank;
    options.size = *size;
    if (*size < 1 || *rank >= *size) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the variables say rank {} of {} ({}, {}); ranks go from 0 to "
                                "size - 1",
                                *rank, *size, launcher.rank, launcher.size));
    }
    if (*size == 1) return std::optional<RankOptions>();  // it started no others
    if (!Get(launcher.local).empty()) {
      const auto local = Number(launcher.local);
      if (!local) return local.status();
      options.local_rank = *local;
    }
    for (const char* name : kLocalSizes) {
      if (Get(name).empty()) continue;
      const auto here = Number(name);
      if (!here) return here.status();
      if (*here == *size) continue;
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is {} and {} is {}: the ranks are on several hosts; start all "
                                "on one",
                                name, *here, launcher.size, *size));
    }
    if (!Get("CULET_RANK_WAIT").empty()) {
      const auto seconds = Number("CULET_RANK_WAIT");
      if (!seconds) return seconds.status();
      options.wait_seconds = *seconds;
    }
    options.meeting = MeetingOf(launcher);
    if (options.meeting.empty()) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("{} is set and MASTER_PORT is not; set MASTER_ADDR and MASTER_PORT, "
                      "or CULET_MEETING to a name that these ranks share",
                      launcher.rank));
    }
    return std::optional(options);
  }
  return std::optional<RankOptions>();
}

}  // namespace culet
