// culet explain: the choice for each problem, and for every other kernel why not.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/gemm.h"
#include "culet/json.h"
#include "output.h"
#include "problem_args.h"
#include "session.h"

namespace culet::cli {
namespace {

struct ExplainArgs {
  CommonArgs common;
  CacheArgs cache;
  ProblemArgs problems;
};

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
  if (const std::string misuse = args.problems.Misuse(); !misuse.empty()) return Misuse(misuse);
  Result<Session> session = OpenSession(args.common, &args.cache);
  if (!session.ok()) return Fail(session.status(), json);
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
  args->cache.AddTo(command);
  args->common.AddTo(command);
  command.Runs([args] { return RunExplain(*args); });
}

}  // namespace culet::cli
