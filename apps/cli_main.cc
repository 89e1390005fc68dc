#include "cli_main.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "commands.h"
#include "culet/log.h"
#include "culet/lost_file.h"
#include "output.h"
#include "streams.h"

namespace {

using namespace culet::cli;

void AddCommands(const Command& program) {
  AddRun(program);
  AddCompare(program);
  AddTune(program);
  AddQuantize(program);
  AddExplain(program);
  AddBench(program);
  AddVerify(program);
  AddKernels(program);
  AddDevices(program);
  AddCache(program);
  AddDoctor(program);
  AddRank(program);
}

// The library's messages on stderr, where CULET_LOG asks for them.
void LogAsEnvironmentSays() {
  const char* const wanted = std::getenv("CULET_LOG");
  if (wanted == nullptr || *wanted == '\0') return;
  for (const auto level : {culet::LogLevel::kOff, culet::LogLevel::kDebug, culet::LogLevel::kInfo,
                           culet::LogLevel::kWarning}) {
    if (std::string_view(wanted) != ToString(level)) continue;
    culet::SetLog([](culet::LogLevel, const std::string& message) { Note(message); }, level);
    return;
  }
  Note(fmt::format("CULET_LOG is '{}'; it can be debug, info, warning or off", wanted));
}

}  // namespace

int culet_cli_main(int argc, char** argv) {
  OpenStandardStreams();
  IgnoreFileSizeSignal();
  LogAsEnvironmentSays();
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  culet::ExplainLostFiles({.exit_code = kFailure, .json = json});
  int code = kFailure;
  try {
    if (json) ReportMisuseAsJson();
    const std::string_view name = argc > 1 ? argv[1] : "";
    code = name == "chat" || name == "report"
               ? Misuse(fmt::format("culet {} is a part of the Python package: pip install culet, "
                                    "then culet {} or python -m culet {}",
                                    name, name, name))
               : RunCommandLine(argc, argv, AddCommands);
  } catch (const std::bad_alloc&) {
    code = Fail(culet::Status(culet::StatusCode::kResourceExhausted, "the host has no memory left"),
                json);
  } catch (const std::exception& error) {
    code = Fail(culet::Status(culet::StatusCode::kInternal, error.what()), json);
  }
  if (FlushStdout()) return code;
  Note("stdout could not be written");
  return code == kSuccess ? kFailure : code;
}
