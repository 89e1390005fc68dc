// The devices of this machine by name.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/accelerator.h"
#include "culet/device.h"

namespace culet {
namespace {

std::string NameOf(const DeviceInfo& device) {
  return device.ordinal < 0 ? "cpu" : fmt::format("cuda:{}", device.ordinal);
}

}  // namespace

std::vector<DeviceInfo> Devices(std::string* cuda_note) {
  std::vector<DeviceInfo> devices = {HostDevice()};
  const Status status = AppendAccelerators(devices);
  if (cuda_note != nullptr) *cuda_note = status.message();
  return devices;
}

Result<DeviceInfo> FindDevice(const std::string& name) {
  if (name == "cpu") {
    CULET_RETURN_IF_ERROR(CheckHostThreads());
    CULET_RETURN_IF_ERROR(CheckHostSimd());
    return HostDevice();
  }
  std::string note;
  const std::vector<DeviceInfo> devices = Devices(&note);
  const std::string wanted = name == "cuda" ? "cuda:0" : name;
  const auto found = std::ranges::find(devices, wanted, NameOf);
  if (found != devices.end()) return *found;
  std::string there;
  for (const DeviceInfo& device : devices) {
    there += fmt::format("{}'{}'", there.empty() ? "" : ", ", NameOf(device));
  }
  return Status(StatusCode::kNotFound,
                fmt::format("device '{}' is not there; use {}{}{}", name, there,
                            note.empty() ? "" : " (", note.empty() ? "" : note + ")"));
}

Result<HardwareRates> MeasureRates(const DeviceInfo& device, DataType type) {
  return device.arch == 0 ? MeasureHostRates() : MeasureAcceleratorRates(device, type);
}

}  // namespace culet
