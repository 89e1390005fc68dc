#include "cli_main.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

#include "commands.h"
#include "lost_file.h"
#include "output.h"
#include "streams.h"

namespace {

using namespace culet::cli;

void AddCommands(const Command& program) {
  AddRun(program);
  AddCompare(program);
  AddTune(program);
  AddExplain(program);
  AddBench(program);
  AddVerify(program);
  AddKernels(program);
  AddDevices(program);
  AddCache(program);
}

}  // namespace

int culet_cli_main(int argc, char** argv) {
  OpenStandardStreams();
  IgnoreFileSizeSignal();
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  ExplainLostFiles(json);
  int code = kFailure;
  try {
    if (json) ReportMisuseAsJson();
    code = RunCommandLine(argc, argv, AddCommands);
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
