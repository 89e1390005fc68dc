#include "team_args.h"

#include <signal.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "culet/dispatch_cache.h"

namespace culet::cli {

void TeamArgs::AddTo(const Command& command) {
  command
      .Add("--tp", size_,
           "Share the model among so many ranks: processes of this host, on GPUs one each")
      .Type("N")
      .Range(1, 1024);
  command
      .Add("--exchange", exchange_,
           "Type of what crosses between GPUs; bf16 halves it, and rounds each rank's summands")
      .OneOf({"f32", "bf16"});
  command
      .Add("--experts-by", experts_,
           "How ranks share routed experts: each by width, or whole ones; default: by width where "
           "that has parts for all ranks")
      .OneOf({"width", "expert"});
}

ExpertsBy TeamArgs::experts() const {
  if (experts_.empty()) return ExpertsBy::kRule;
  return experts_ == "expert" ? ExpertsBy::kExpert : ExpertsBy::kWidth;
}

DataType TeamArgs::exchange() const {
  return exchange_ == "bf16" ? DataType::kBfloat16 : DataType::kFloat32;
}

std::string TeamArgs::Misuse(const std::string& device) const {
  if (exchange() != DataType::kFloat32 && (!given() || device == "cpu")) {
    return "--exchange bf16 needs GPUs of several ranks: --tp N --device cuda";
  }
  if (experts() != ExpertsBy::kRule && !given()) {
    return "--experts-by says how ranks share experts; give --tp N beside it";
  }
  if (!given() || device == "cpu" || device == "cuda") return {};
  return fmt::format("--tp takes the host's first GPUs; leave out the number of --device {}",
                     device);
}

std::optional<int> TeamArgs::Serve(const TeamModel& model, bool json) const {
  if (!given()) return std::nullopt;
  const auto launched = RanksOfLauncher();
  if (!launched.ok()) return Fail(launched.status(), json);
  if (!launched->has_value() || (*launched)->rank == 0) return std::nullopt;
  if ((*launched)->size != size_) {
    return cli::Misuse(
        fmt::format("--tp is {}, and the launcher started {} ranks", size_, (*launched)->size));
  }
  signal(SIGINT, SIG_IGN);  // rank 0 decides
  auto ranks = JoinRanks(**launched);
  if (!ranks.ok()) return Fail(ranks.status(), json);
  const Status served = ServeRank(**ranks, &model);
  return served.ok() ? kSuccess : Fail(served, json);
}

Result<std::unique_ptr<RankTeam>> TeamArgs::Start() const {
  if (!given()) return std::unique_ptr<RankTeam>();
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return RankTeam::Start(size_, {error ? "culet" : program.string(), "rank"});
}

Status CheckSums(const std::string& device) {
  if (device != "cpu") return {};
  return Status(StatusCode::kUnsupported,
                "ranks on the CPU make all sums in one way, in the host's memory; give "
                "--device cuda");
}

Json ToJson(const ExchangeChoice& choice) {
  return {{"type", ToString(choice.wire)},
          {"push_bytes", choice.push_bytes},
          {"two_shot_bytes", choice.two_shot_bytes},
          {"measured", choice.measured}};
}

Result<std::string> DescribeExperts(const DecoderConfig& config, const TeamArgs& team) {
  if (config.experts == 0) return std::string("there are none");
  std::string parts;
  bool by_expert = false;
  for (int rank = 0; rank < team.size(); ++rank) {
    const auto part = ShardOf(config, rank, team.size(), team.experts());
    if (!part.ok()) return part.status();
    const RankParts& own = part->shard.experts;
    by_expert = own.present();
    const std::int64_t size = by_expert ? own.size_of(rank) : part->moe_intermediate;
    parts += fmt::format("{}{}", rank > 0 ? ", " : "", size);
  }
  return by_expert
             ? fmt::format("by expert, {} of {}", parts, config.experts)
             : fmt::format("by width, {} of {} columns of each", parts, config.moe_intermediate);
}

TeamModel TeamModelOf(const TeamArgs& team, const CommonArgs& common, const CacheArgs* cache,
                      const std::string& path) {
  std::error_code error;
  TeamModel model;
  model.path = std::filesystem::absolute(path, error).string();
  if (error) model.path = path;
  model.device = common.device;
  model.providers = common.providers;
  model.exchange = team.exchange();
  model.experts = team.experts();
  if (cache == nullptr) return model;
  if (const auto file = CacheFile::DefaultPath(cache->path); file.ok()) model.cache = *file;
  return model;
}

Result<culet::Session> CreateSession(RankTeam* team, const DecoderModel& model,
                                     std::unique_ptr<KernelDispatch>& dispatch,
                                     const TeamSession& session) {
  return team != nullptr ? team->CreateSession(model, dispatch, session)
                         : culet::Session::Create(model, *dispatch, session.options);
}

}  // namespace culet::cli
