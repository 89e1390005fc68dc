#include "cli_main.h"

#include <algorithm>
#include <exception>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "output.h"
#include "streams.h"

namespace {

using namespace culet::cli;

int Main(int argc, char** argv, bool json) {
  CLI::App app("Finds, explains and measures the fastest kernel for each matrix product.", "culet");
  app.set_version_flag("--version", "culet " CULET_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(26);
  Chosen chosen;
  AddRun(app, chosen);
  AddCompare(app, chosen);
  AddTune(app, chosen);
  AddExplain(app, chosen);
  AddBench(app, chosen);
  AddVerify(app, chosen);
  AddKernels(app, chosen);
  AddDevices(app, chosen);
  AddCache(app, chosen);
  if (json) ReportMisuseAsJson();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ConversionError& error) {
    return Misuse(fmt::format("{}; the value is no number that this option takes", error.what()));
  } catch (const CLI::ParseError& error) {
    return Misuse(fmt::format("{} (culet --help shows the options)", error.what()));
  }
  if (!chosen) return Misuse("a command is missing; culet --help lists them");
  return chosen();
}

}  // namespace

int culet_cli_main(int argc, char** argv) {
  OpenStandardStreams();
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  int code = kFailure;
  try {
    code = Main(argc, argv, json);
  } catch (const std::exception& error) {
    code = Fail(culet::Status(culet::StatusCode::kInternal, error.what()), json);
  }
  if (FlushStdout()) return code;
  Note("stdout could not be written");
  return code == kSuccess ? kFailure : code;
}
