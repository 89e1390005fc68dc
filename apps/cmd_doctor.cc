// culet doctor: what this machine has for culet, what is broken or slow, and what to do about it.
#include <memory>
#include <string>

#include "commands.h"
#include "culet/doctor.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

struct DoctorArgs {
  bool json = false;
  CacheArgs cache;
};

int RunDoctor(const DoctorArgs& args) {
  const Diagnosis diagnosis = Diagnose({.cache_path = args.cache.path, .nvml = {}});
  if (args.json) {
    PrintJson(Json::parse(JsonOf(diagnosis)));
  } else {
    PrintText(diagnosis.ToString());
  }
  return diagnosis.ok() ? kSuccess : kFailure;
}

}  // namespace

void AddDoctor(const Command& program) {
  auto args = std::make_shared<DoctorArgs>();
  const Command command = program.AddCommand(
      "doctor", "Look at driver, GPUs, libraries and caches: what is broken, what will be slow");
  command.AddFlag("--json", args->json, "Print one JSON document");
  args->cache.AddTo(command);
  command.Runs([args] { return RunDoctor(*args); });
}

}  // namespace culet::cli
