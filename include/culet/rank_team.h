// RankTeam: a model on several ranks, driven from the first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/gemm.h"
#include "culet/ranks.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// What all ranks open.
struct TeamModel {
  std::string path;                   ///< as DecoderModel::Load; with random weights its config
  DataType random = DataType::kNull;  ///< of random weights
  std::uint64_t seed = 1;             ///< of these
  std::string device = "cpu";         ///< "cpu", or "cuda": GPU n for the n-th rank of the host
  std::string providers;              ///< as GemmOptions
  std::string cache;                  ///< a cache file of kernels; empty: none
  DataType exchange = DataType::kFloat32;  ///< ExchangeOptions::wire
  bool unlimited = false;                  ///< no max_position: what is timed may go beyond
  ExpertsBy experts = ExpertsBy::kRule;    ///< as LoadOptions
};

/// How a session's steps are computed.
struct TeamSession {
  SessionOptions options;  ///< without a stream
  bool reference = false;  ///< by the definition in double
  DispatchPolicy policy = DispatchPolicy::kDefault;
  Determinism determinism = Determinism::kFast;
  bool exact = false;  ///< as CudaDispatchOptions::round_product_inputs false
};

/// The other ranks of a model, as rank 0 has them.
class RankTeam {
 public:
  /// Under a launcher (RanksOfLauncher) meets the ranks that it started; they call ServeRank. Else
  /// starts `command` for each other rank, with CULET_RANK, CULET_RANKS and CULET_MEETING in its
  /// environment; it must call ServeRank. Errors: INVALID_ARGUMENT for another number of ranks than
  /// the launcher's; NOT_FOUND and IO for a command that cannot be started; as JoinRanks.
  static Result<std::unique_ptr<RankTeam>> Start(int size, const std::vector<std::string>& command);
  /// Under a launcher, on each of its ranks: all of them then make the same calls of a team of
  /// their own, which are compared, and none leads. Errors: FAILED_PRECONDITION without a launcher;
  /// as Start.
  static Result<std::unique_ptr<RankTeam>> Join(int size);
  /// Ends the other ranks: those that it started are gone when it returns.
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  /// The others open the model while `own` opens this rank's part, with these options beside its
  /// own. Errors: those of `own`; FAILED_PRECONDITION for one of another rank, named, and for a
  /// rank that was started with another model, option or version. Once.
  Status Open(const TeamModel& model, const std::function<Status()>& own);

  /// Instead of a model: measures how sums are best made (ranks.h) on the devices of `model`, which
  /// is not opened. Errors: as TuneExchange.
  Result<ExchangeTuning> Tune(const TeamModel& model);

  /// A session of this rank, which leads those of the others. `dispatch` has this rank's kernels,
  /// and then those over all ranks; it outlives the session, as does the team. Errors: as
  /// Session::Create, on any rank; as MakeRankDispatch.
  Result<Session> CreateSession(const DecoderModel& model,
                                std::unique_ptr<KernelDispatch>& dispatch,
                                const TeamSession& session);

  /// Whether there is a launcher, whose ranks Join.
  static bool IsLaunched();

  Communicator& ranks() const noexcept { return *ranks_; }
  int size() const noexcept { return ranks_->size(); }

 private:
  struct Others;
  RankTeam();
  Status Tell(std::uint8_t what, const std::string& text) const;
  std::unique_ptr<Others> others_;
  std::unique_ptr<Communicator> ranks_;
  std::shared_ptr<RankExchange> exchange_;  // of all sessions, since the first
  TeamModel opened_;
  int sessions_ = 0;
  bool leads_ = true;
};

/// The device of a rank: "cuda:1" for the second of a host and "cuda".
std::string DeviceOf(const TeamModel& model, const Communicator& ranks);

/// What a rank other than the first does: opens what rank 0 opens, makes the calls that its
/// sessions make, and returns when it leaves. `own`: what this rank was told to open; null for one
/// that takes what rank 0 says. Errors: what ended it early.
Status ServeRank(Communicator& ranks, const TeamModel* own = nullptr);

}  // namespace culet
