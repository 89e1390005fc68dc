// culet kernels: what the registry holds, in its order of preference.
#include <memory>
#include <string>

#include <fmt/format.h>

#include "commands.h"
#include "culet/device.h"
#include "culet/json.h"
#include "culet/registry.h"
#include "output.h"
#include "session.h"

namespace culet::cli {
namespace {

std::string ShownTypes(const KernelDesc& desc) {
  const auto name = [](DataType type) { return type == DataType::kNull ? "any" : ToString(type); };
  if (desc.type_a == DataType::kNull && desc.type_b == DataType::kNull &&
      desc.type_d == DataType::kNull) {
    return "any";
  }
  return fmt::format("{} x {} > {}", name(desc.type_a), name(desc.type_b), name(desc.type_d));
}

std::string ShownTile(const KernelDesc& desc) {
  const auto size = [](int value) { return value == 0 ? std::string("-") : std::to_string(value); };
  return fmt::format("{}x{}x{}", size(desc.tile_m), size(desc.tile_n), size(desc.tile_k));
}

int RunKernels(const CommonArgs& common) {
  if (const Status status = common.Apply(); !status.ok()) return Fail(status, common.json);
  const Result<DeviceInfo> device = FindDevice(common.device);
  if (!device.ok()) return Fail(device.status(), common.json);
  const Result<Registry> registry = Registry::Builtin(*device, common.providers);
  if (!registry.ok()) return Fail(registry.status(), common.json);

  Table table({{"kernel"},
               {"backend"},
               {"types"},
               {"tile", Table::Align::kRight},
               {"determinism"},
               {"reads B at", Table::Align::kRight},
               {"computes at", Table::Align::kRight}});
  Json list = Json::array();
  for (const Kernel* kernel : registry->kernels()) {
    const KernelDesc& desc = kernel->desc();
    const KernelInfo& info = kernel->info();
    table.Add({kernel->id(), ToString(desc.backend), ShownTypes(desc), ShownTile(desc),
               ToString(desc.determinism), fmt::format("{:.0f} %", 100 * info.bandwidth_share),
               fmt::format("{:.0f} %", 100 * info.matrix_share)});
    list.push_back(Json::parse(JsonOf(*kernel)));
  }
  if (common.json) {
    PrintJson({{"device", device->device_class}, {"kernels", list}});
  } else {
    Print("{}{} kernels for {}; shares are the cost model's, of the device's rates\n",
          table.ToString(), registry->kernels().size(), device->device_class);
  }
  return kSuccess;
}

}  // namespace

void AddKernels(const Command& program) {
  auto args = std::make_shared<CommonArgs>();
  const Command command = program.AddCommand("kernels", "List the kernels that compete");
  args->AddTo(command);
  command.Runs([args] { return RunKernels(*args); });
}

}  // namespace culet::cli
