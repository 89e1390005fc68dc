// culet: the fastest kernel for each matrix product, from the command line.
#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.h"
#include "output.h"

namespace {

int Main(int argc, char** argv) {
  using namespace culet::cli;
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
  const int code = chosen();
  if (std::fflush(stdout) != 0) {
    Note("stdout could not be written");
    return kFailure;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "culet: {}\n", error.what());
    return culet::cli::kFailure;
  }
}
