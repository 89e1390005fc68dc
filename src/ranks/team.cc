// RankTeam: starts, leads and ends the other ranks.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "culet/rank_team.h"
#include "ranks/team_calls.h"

namespace culet {
namespace {

// What a call of a session is compared by.
std::string DescribeCall(std::span<const std::byte> call) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::byte byte : call) hash = (hash ^ static_cast<unsigned>(byte)) * 1099511628211u;
  return fmt::format("call {} of a session, {} bytes, {:016x}", static_cast<int>(call.front()),
                     call.size(), hash);
}

std::string NewMeeting() {
  std::random_device random;
  return fmt::format("team-{}-{:08x}{:08x}", getpid(), random(), random());
}

// The environment with these variables instead of its own of the name.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view own = *entry;
    const bool replaced = std::ranges::any_of(variables, [&](const std::string& variable) {
      return own.starts_with(variable.substr(0, variable.find('=') + 1));
    });
    if (!replaced) all.emplace_back(own);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Without this process's input and output, which are its own.
Result<pid_t> StartOne(std::vector<std::string> command, const RankOptions& options) {
  std::vector<std::string> environment = EnvironmentWith(
      {fmt::format("CULET_RANK={}", options.rank), fmt::format("CULET_RANKS={}", options.size),
       fmt::format("CULET_MEETING={}", options.meeting)});
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, command.front().c_str(), &files, nullptr,
                                 Pointers(command).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return pid;
  return Status(error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                fmt::format("rank {} was not started: {}: {}", options.rank, command.front(),
                            std::strerror(error)));
}

}  // namespace

// The processes that were started here.
struct RankTeam::Others {
  std::vector<pid_t> processes;

  // Whether all of them are gone by then.
  bool WaitFor(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
      std::erase_if(processes, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
      if (processes.empty()) return true;
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  // An error that names the first that has ended. It stays for WaitFor.
  Status AllRun() const {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      siginfo_t ended{};
      const auto pid = static_cast<id_t>(processes[i]);
      if (waitid(P_PID, pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0)
        continue;
      return Status(
          StatusCode::kFailedPrecondition,
          fmt::format("rank {} died before it met the others; see its own message", i + 1));
    }
    return {};
  }
  ~Others() {
    constexpr std::chrono::milliseconds kStop(5000), kKill(60'000);
    if (WaitFor(kStop)) return;
    for (const pid_t pid : processes) kill(pid, SIGKILL);
    WaitFor(kKill);
  }
};

RankTeam::RankTeam() : others_(std::make_unique<Others>()) {}

RankTeam::~RankTeam() {
  if (ranks_ == nullptr || !leads_) return;
  static_cast<void>(Tell(static_cast<std::uint8_t>(TeamCall::kStop), {}));
  exchange_.reset();
  ranks_.reset();  // the others see that it left
}

Result<std::unique_ptr<RankTeam>> RankTeam::Start(int size,
                                                  const std::vector<std::string>& command) {
  if (size < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("size is {}; a team has at least one rank", size));
  }
  std::unique_ptr<RankTeam> team(new RankTeam);
  auto launched = RanksOfLauncher();
  if (!launched) return launched.status();
  RankOptions options;
  if (launched->has_value()) {
    options = **launched;
    if (options.size != size) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} ranks are asked for, and the launcher started {}; ask for as "
                                "many",
                                size, options.size));
    }
    if (options.rank != 0) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("rank {} of the launcher leads no team; it calls ServeRank", options.rank));
    }
  } else {
    options.size = size;
    options.meeting = NewMeeting();
    for (int rank = 1; rank < size; ++rank) {
      options.rank = rank;
      const auto started = StartOne(command, options);
      if (!started) {
        for (const pid_t pid : team->others_->processes) kill(pid, SIGKILL);
        return started.status();
      }
      team->others_->processes.push_back(*started);
    }
    options.rank = 0;
    options.still_coming = [others = team->others_.get()] { return others->AllRun(); };
  }
  auto joined = JoinRanks(options);
  if (!joined) {
    for (const pid_t pid : team->others_->processes) kill(pid, SIGKILL);
    return joined.status();
  }
  team->ranks_ = *std::move(joined);
  return team;
}

Result<std::unique_ptr<RankTeam>> RankTeam::Join(int size) {
  const auto launched = RanksOfLauncher();
  if (!launched) return launched.status();
  if (!launched->has_value() || (*launched)->size != size) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("{} ranks are asked for, and the launcher started {}", size,
                              launched->has_value() ? (*launched)->size : 0));
  }
  auto joined = JoinRanks(**launched);
  if (!joined) return joined.status();
  std::unique_ptr<RankTeam> team(new RankTeam);
  team->ranks_ = *std::move(joined);
  team->leads_ = false;
  return team;
}

bool RankTeam::IsLaunched() {
  const auto launched = RanksOfLauncher();
  return !launched || launched->has_value();
}

Status RankTeam::Tell(std::uint8_t what, const std::string& text) const {
  if (!leads_) return {};
  const std::string message = static_cast<char>(what) + text;
  return ranks_->Tell(std::as_bytes(std::span(message)));
}

Status RankTeam::Open(const TeamModel& model, const std::function<Status()>& own) {
  CULET_RETURN_IF_ERROR(Tell(static_cast<std::uint8_t>(TeamCall::kOpen), ToJson(model)));
  opened_ = model;
  const auto plan = PlanOf(model);
  CULET_RETURN_IF_ERROR(ranks_->Agree(plan.status(), plan ? *plan : std::string()));
  ranks_->SetWait(ranks_->options().start_seconds);  // files are not read equally fast
  const Status opened = ranks_->Agree(own(), "loaded");
  ranks_->SetWait(ranks_->options().wait_seconds);
  return opened;
}

Result<ExchangeTuning> RankTeam::Tune(const TeamModel& model) {
  CULET_RETURN_IF_ERROR(Tell(static_cast<std::uint8_t>(TeamCall::kTune), ToJson(model)));
  return TuneSums(model, *ranks_);
}

Result<Session> RankTeam::CreateSession(const DecoderModel& model,
                                        std::unique_ptr<KernelDispatch>& dispatch,
                                        const TeamSession& wanted) {
  if (opened_.exchange != DataType::kFloat32 &&
      wanted.determinism == Determinism::kBatchInvariant) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("exchange is {}, whose sums depend on how many rows there are; a "
                              "batch-invariant session needs float32",
                              ToString(opened_.exchange)));
  }
  const int number = sessions_++;
  const std::string text = ToJson(wanted);
  CULET_RETURN_IF_ERROR(Tell(static_cast<std::uint8_t>(TeamCall::kSession), text));
  auto session = [&]() -> Result<Session> {
    if (exchange_ == nullptr) {
      auto made = ExchangeOf(opened_, *ranks_, dispatch->memory());
      if (!made) return made.status();
      exchange_ = *std::move(made);
    }
    auto over_ranks = MakeRankDispatch(std::move(dispatch), *ranks_, exchange_);
    if (!over_ranks) return over_ranks.status();
    dispatch = *std::move(over_ranks);
    return Session::Create(model, *dispatch, wanted.options);
  }();
  CULET_RETURN_IF_ERROR(ranks_->Agree(session.status(), text));
  if (!leads_) {
    // Each rank makes its calls by itself, and an end tells nobody.
    session->SetLead([ranks = ranks_.get()](std::span<const std::byte> call) {
      return call.empty() ? Status() : ranks->Agree({}, DescribeCall(call));
    });
    return session;
  }
  session->SetLead([ranks = ranks_.get(), number](std::span<const std::byte> call) {
    std::vector<std::byte> message(1 + sizeof number + call.size());
    message[0] = static_cast<std::byte>(TeamCall::kCall);
    std::memcpy(message.data() + 1, &number, sizeof number);
    std::ranges::copy(call, message.begin() + 1 + sizeof number);
    return ranks->Tell(message);
  });
  return session;
}

}  // namespace culet
