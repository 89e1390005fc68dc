#pragma once

namespace culet {

/// The power limit in force of the GPU with this PCI bus id, in watts, as the driver's management
/// library (NVML, loaded for the question) tells it; 0 where it is not there or does not say.
double PowerLimitWatts(const char* pci_bus_id) noexcept;

}  // namespace culet
