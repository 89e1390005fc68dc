// culet rank: serves a rank of a model that another process leads.
#include <signal.h>

#include <memory>

#include "commands.h"
#include "culet/rank_team.h"
#include "output.h"

namespace culet::cli {
namespace {

int RunRank() {
  signal(SIGINT, SIG_IGN);  // rank 0 decides
  const auto options = RanksOfLauncher();
  if (!options.ok()) return Fail(options.status(), false);
  if (!options->has_value() || (*options)->rank == 0) {
    return Misuse("this is no rank beside a first one; culet run --tp N starts its ranks itself");
  }
  auto ranks = JoinRanks(**options);
  if (!ranks.ok()) return Fail(ranks.status(), false);
  const Status served = ServeRank(**ranks);
  return served.ok() ? kSuccess : Fail(served, false);
}

}  // namespace

void AddRank(const Command& program) {
  const Command command = program.AddCommand(
      "rank", "Serve a rank of a model that another process leads, which starts it (--tp)");
  command.Runs([] { return RunRank(); });
}

}  // namespace culet::cli
