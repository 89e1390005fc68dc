// culet explain: the choice for each problem, and for every other kernel why not.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/exchange_choice.h"
#include "culet/gemm.h"
#include "culet/json.h"
#include "output.h"
#include "problem_args.h"
#include "session.h"
#include "team_args.h"

namespace culet::cli {
namespace {

struct ExplainArgs {
  CommonArgs common;
  CacheArgs cache;
  ProblemArgs problems;
  TeamArgs team;
};

// How the ranks of such devices make their sums.
Result<ExchangeChoice> SumsOf(const ExplainArgs& args, const Session& session) {
  CULET_RETURN_IF_ERROR(CheckSums(args.common.device));
  const int size = args.team.size();
  const std::string path = session.file ? session.file->path() : "";
  return FindExchange(path, session.gemm.device().device_class, size, args.team.exchange())
      .value_or(UsualExchange(size, args.team.exchange()));
}

// With a model also how they share its experts.
int ExplainRanks(const ExplainArgs& args, const Session& session) {
  const bool json = args.common.json;
  std::string experts;
  if (!args.problems.model().empty()) {
    const auto config = ReadDecoderConfig(args.problems.model());
    if (!config.ok()) return Fail(config.status(), json);
    const auto shared = DescribeExperts(*config, args.team);
    if (!shared.ok()) return Fail(shared.status(), json);
    experts = *shared;
  }
  const auto choice = SumsOf(args, session);
  if (!choice.ok() && experts.empty()) return Fail(choice.status(), json);
  if (json) {
    PrintJson({{"device", session.gemm.device().device_class},
               {"ranks", args.team.size()},
               {"sums", choice.ok() ? ToJson(*choice) : Json(nullptr)},
               {"experts", experts.empty() ? Json(nullptr) : Json(experts)}});
    return kSuccess;
  }
  if (choice.ok()) Print("sums of {} ranks: {}\n", args.team.size(), ToString(*choice));
  if (!experts.empty()) Print("experts of {} ranks: {}\n", args.team.size(), experts);
  return kSuccess;
}

Json ExplanationJson(const Problem& problem, const Explanation& explanation) {
  Json json = ToJson(problem);
  const Json explained = Json::parse(JsonOf(explanation));
  for (const auto& [name, value] : explained.items()) {
    if (name != "problem") json[name] = value;
  }
  return json;
}

int RunExplain(const ExplainArgs& args) {
  const bool json = args.common.json;
  const bool sums = args.team.given();
  const bool problems_too = args.problems.given_beside_model() ||
                            (args.problems.given() && args.problems.model().empty());
  const std::string misuse = !sums ? args.problems.Misuse()
                             : problems_too
                                 ? "--tp explains sums, and experts of --model; leave out problems"
                                 : args.team.Misuse(args.common.device);
  if (!misuse.empty()) return Misuse(misuse);
  Result<Session> session = OpenSession(args.common, &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
  if (sums) return ExplainRanks(args, *session);
  const auto problems = args.problems.Load(session->gemm.device().arch);
  if (!problems.ok()) return Fail(problems.status(), json);

  Json list = Json::array();
  for (const Problem& problem : *problems) {
    const Result<Explanation> explanation = session->gemm.explain(problem.desc);
    if (!explanation.ok()) return Fail(explanation.status(), json);
    if (json) {
      list.push_back(ExplanationJson(problem, *explanation));
    } else {
      if (!problem.name.empty()) Print("{}: ", problem.name);
      Print("{}\n", explanation->ToString());
    }
  }
  if (json) PrintJson({{"device", session->gemm.device().device_class}, {"problems", list}});
  return kSuccess;
}

}  // namespace

void AddExplain(const Command& program) {
  auto args = std::make_shared<ExplainArgs>();
  const Command command =
      program.AddCommand("explain", "Tell the choice for each problem, and why not the others");
  args->problems.AddTo(command);
  args->team.AddTo(command);
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunExplain(*args); });
}

}  // namespace culet::cli
