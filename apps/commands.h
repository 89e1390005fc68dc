// The commands. Each Add function declares one and its options; when the command line names it,
// `chosen` becomes the function that runs it and returns the exit code.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace culet::cli {

using Chosen = std::function<int()>;

void AddDevices(CLI::App& app, Chosen& chosen);
void AddKernels(CLI::App& app, Chosen& chosen);
void AddExplain(CLI::App& app, Chosen& chosen);
void AddBench(CLI::App& app, Chosen& chosen);
void AddTune(CLI::App& app, Chosen& chosen);
void AddVerify(CLI::App& app, Chosen& chosen);
void AddCache(CLI::App& app, Chosen& chosen);
void AddRun(CLI::App& app, Chosen& chosen);
void AddCompare(CLI::App& app, Chosen& chosen);

}  // namespace culet::cli
