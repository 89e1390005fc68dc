// What rank 0 tells the other ranks of its team.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "culet/decoder.h"
#include "culet/rank_team.h"
#include "culet/status.h"

namespace culet {

enum class TeamCall : std::uint8_t {
  kOpen = 1,  ///< a TeamModel as JSON
  kSession,   ///< a TeamSession as JSON; sessions are numbered from 0
  kCall,      ///< the number of a session, and a call of it (model/session_calls.h)
  kTune,      ///< a TeamModel as JSON, whose devices' sums are measured
  kStop,
};

std::string ToJson(const TeamModel& model);
Result<TeamModel> ModelOfJson(const std::string& text);
std::string ToJson(const TeamSession& session);
Result<TeamSession> SessionOfJson(const std::string& text);

/// What ranks must have alike before they load: this library's version, the model's config and the
/// sizes of its files, and how it is opened. A line each.
Result<std::string> PlanOf(const TeamModel& model);

/// The gemm of a rank, with the measured choices that there are.
Result<Gemm> GemmOf(const TeamModel& model, const Communicator& ranks);
/// How it exchanges with the others.
Result<std::shared_ptr<RankExchange>> ExchangeOf(const TeamModel& model, Communicator& ranks,
                                                 DeviceMemory& memory, bool tuning = false);
/// A rank's part of RankTeam::Tune.
Result<ExchangeTuning> TuneSums(const TeamModel& model, Communicator& ranks);
/// The kernels of a rank.
Result<std::unique_ptr<KernelDispatch>> DispatchOf(Gemm& gemm, const TeamSession& session);

}  // namespace culet
