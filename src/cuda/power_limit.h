#pragma once

namespace culet {

/// The enforced power limit of the GPU with this PCI bus id, in watts, from NVML (loaded for this
/// call); 0 if NVML is missing or does not report it.
double PowerLimitWatts(const char* pci_bus_id) noexcept;

}  // namespace culet
