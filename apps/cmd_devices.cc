// culet devices: the machine as caches and the cost model see it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/device.h"
#include "culet/json.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

struct DevicesArgs {
  CommonArgs common;
  bool measure = false;
};

std::string SelectorOf(const DeviceInfo& device) {
  return device.ordinal < 0 ? "cpu" : fmt::format("cuda:{}", device.ordinal);
}

int RunDevices(const DevicesArgs& args) {
  const bool json = args.common.json;
  if (const Status status = args.common.Apply(); !status.ok()) return Fail(status, json);
  if (const auto cpu = FindDevice("cpu"); !cpu.ok()) return Fail(cpu.status(), json);
  std::string cuda_note;
  const std::vector<DeviceInfo> devices = Devices(&cuda_note);
  if (!cuda_note.empty()) Note(cuda_note);

  Table table({{"device"},
               {"name"},
               {"units", Table::Align::kRight},
               {"cache", Table::Align::kRight},
               {"memory", Table::Align::kRight},
               {"read", Table::Align::kRight},
               {"F32", Table::Align::kRight},
               {"rates"},
               {"class"}});
  Json list = Json::array();
  for (const DeviceInfo& device : devices) {
    HardwareRates rates = TypicalRates(device, DataType::kFloat32);
    if (args.measure && device.arch == 0) {
      const Result<HardwareRates> measured = MeasureHostRates();
      if (!measured.ok()) return Fail(measured.status(), json);
      rates = *measured;
    }
    table.Add({SelectorOf(device), device.name, std::to_string(device.units),
               ShownBytes(static_cast<double>(device.cache_bytes)),
               ShownBytes(static_cast<double>(device.memory_bytes)),
               fmt::format("{:.1f} GB/s", rates.read_gbps),
               fmt::format("{:.0f} GFLOP/s", rates.gflops), rates.measured ? "measured" : "typical",
               device.device_class});
    Json document = Json::parse(JsonOf(device));
    document["rates"] = Json::parse(JsonOf(rates));
    list.push_back(std::move(document));
  }
  const std::vector<std::string> levels = HostSimdLevels();
  if (json) {
    PrintJson({{"devices", list}, {"simd_levels", levels}, {"cuda_note", cuda_note}});
  } else {
    PrintText(fmt::format(
        "{}SIMD levels of the CPU kernels, best first: {}; CULET_SIMD=LEVEL caps them\n",
        table.ToString(), fmt::join(levels, ", ")));
  }
  return kSuccess;
}

}  // namespace

void AddDevices(const Command& program) {
  auto args = std::make_shared<DevicesArgs>();
  const Command command =
      program.AddCommand("devices", "List the machine's devices and their rates");
  args->common.AddTo(command);
  command.AddFlag("--measure", args->measure, "Measure the CPU's rates, half a second");
  command.Runs([args] { return RunDevices(*args); });
}

}  // namespace culet::cli
