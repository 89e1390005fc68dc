// --tp: a command whose model several ranks hold together.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "culet/decoder.h"
#include "culet/rank_team.h"
#include "options.h"
#include "output.h"
#include "session.h"

namespace culet::cli {

class TeamArgs {
 public:
  void AddTo(const Command& command);
  /// What is wrong with the options given; empty when nothing is. `device`: of --device.
  std::string Misuse(const std::string& device) const;
  bool given() const { return size_ > 1; }
  int size() const { return size_; }
  /// What crosses between the ranks.
  DataType exchange() const;
  ExpertsBy experts() const;

  /// On a rank of a launcher that is not the first: serves rank 0, which was told to open `model`
  /// too, and returns the exit code. None elsewhere.
  std::optional<int> Serve(const TeamModel& model, bool json) const;
  /// Rank 0: the others, started or met. Null without --tp. Errors: as RankTeam::Start.
  Result<std::unique_ptr<RankTeam>> Start() const;

 private:
  int size_ = 1;
  std::string exchange_ = "f32", experts_;
};

/// UNSUPPORTED where ranks on `device` make sums in one way.
Status CheckSums(const std::string& device);
Json ToJson(const ExchangeChoice& choice);
/// "by width, 384 of 768 columns each": how ranks share the routed experts of `config`.
Result<std::string> DescribeExperts(const DecoderConfig& config, const TeamArgs& team);

/// What the other ranks open besides the model itself.
TeamModel TeamModelOf(const TeamArgs& team, const CommonArgs& common, const CacheArgs* cache,
                      const std::string& path);

/// The library's, of which rank 0 leads the others where there is a team; `dispatch` is then over
/// all ranks.
Result<culet::Session> CreateSession(RankTeam* team, const DecoderModel& model,
                                     std::unique_ptr<KernelDispatch>& dispatch,
                                     const TeamSession& session);

}  // namespace culet::cli
