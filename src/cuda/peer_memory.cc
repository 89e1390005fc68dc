// PeerMemory by the driver's virtual memory: files stand for allocations, and ranks hand them
// round.
#include "cuda/peer_memory.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/device_scope.h"
#include "cuda/error.h"
#include "cuda/rank_device.h"

namespace culet {
namespace {

struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 Granularity = nullptr;
  PFN_cuMemCreate_v10020 Create = nullptr;
  PFN_cuMemRelease_v10020 Release = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 Export = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 Import = nullptr;
  PFN_cuMemAddressReserve_v10020 Reserve = nullptr;
  PFN_cuMemAddressFree_v10020 Free = nullptr;
  PFN_cuMemMap_v10020 Map = nullptr;
  PFN_cuMemUnmap_v10020 Unmap = nullptr;
  PFN_cuMemSetAccess_v10020 SetAccess = nullptr;
  PFN_cuGetErrorName_v6000 ErrorName = nullptr;

  static Result<Driver> Load() {
    Driver driver;
    std::string missing;
    const auto find = [&](const char* name, auto& function) {
      void* found = nullptr;
      cudaDriverEntryPointQueryResult result{};
      const cudaError_t error =
          Taken(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
      if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) missing = name;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find("cuMemGetAllocationGranularity", driver.Granularity);
    find("cuMemCreate", driver.Create);
    find("cuMemRelease", driver.Release);
    find("cuMemExportToShareableHandle", driver.Export);
    find("cuMemImportFromShareableHandle", driver.Import);
    find("cuMemAddressReserve", driver.Reserve);
    find("cuMemAddressFree", driver.Free);
    find("cuMemMap", driver.Map);
    find("cuMemUnmap", driver.Unmap);
    find("cuMemSetAccess", driver.SetAccess);
    find("cuGetErrorName", driver.ErrorName);
    if (missing.empty()) return driver;
    return Status(StatusCode::kUnsupported,
                  fmt::format("the GPU's driver has no {}; install a newer driver", missing));
  }

  // `code`: of what is not a lack of memory.
  Status Checked(CUresult result, const char* what, StatusCode code) const {
    if (result == CUDA_SUCCESS) return {};
    const char* name = nullptr;
    if (ErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
    return Status(result == CUDA_ERROR_OUT_OF_MEMORY ? StatusCode::kResourceExhausted : code,
                  fmt::format("{}: {}", what, name));
  }
};

// Addresses of this process with a piece behind them.
struct Mapping {
  CUdeviceptr address = 0;
  bool mapped = false;
};

class VirtualPeerMemory final : public PeerMemory {
 public:
  VirtualPeerMemory(const Driver& driver, int device, int ranks)
      : driver_(driver), device_(device), mappings_(static_cast<std::size_t>(ranks)) {}
  ~VirtualPeerMemory() override {
    const DeviceScope scope(device_);
    for (const Mapping& each : mappings_) {
      if (each.mapped) static_cast<void>(driver_.Unmap(each.address, bytes_));
      if (each.address != 0) static_cast<void>(driver_.Free(each.address, bytes_));
    }
    if (file_ >= 0) close(file_);
  }
  const std::vector<void*>& pieces() const noexcept override { return pieces_; }
  int file() const noexcept { return file_; }

  Status MakeOwn(int rank, std::size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t granularity = 0;
    CULET_RETURN_IF_ERROR(
        Checked(driver_.Granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                "cuMemGetAllocationGranularity"));
    bytes_ = (bytes + granularity - 1) / granularity * granularity;
    CUmemGenericAllocationHandle handle = 0;
    CULET_RETURN_IF_ERROR(Checked(driver_.Create(&handle, bytes_, &properties, 0), "cuMemCreate"));
    Status status =
        Checked(driver_.Export(&file_, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                "cuMemExportToShareableHandle");
    if (status.ok()) status = Map(rank, handle);
    static_cast<void>(driver_.Release(handle));  // what is mapped lives on
    CULET_RETURN_IF_ERROR(status);
    void* const own = pieces_[static_cast<std::size_t>(rank)];
    CULET_RETURN_IF_ERROR(CudaStatus(cudaMemset(own, 0, bytes_), "cudaMemset"));
    return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  Status MapOther(int rank, int file) {
    CUmemGenericAllocationHandle handle = 0;
    void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
    CULET_RETURN_IF_ERROR(
        Checked(driver_.Import(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                "cuMemImportFromShareableHandle"));
    const Status status = Map(rank, handle);
    static_cast<void>(driver_.Release(handle));
    return status;
  }

  void CloseFile() { close(std::exchange(file_, -1)); }

 private:
  Status Checked(CUresult result, const char* what) const {
    return driver_.Checked(result, what, StatusCode::kUnsupported);
  }

  Status Map(int rank, CUmemGenericAllocationHandle handle) {
    Mapping& mapping = mappings_[static_cast<std::size_t>(rank)];
    CULET_RETURN_IF_ERROR(
        Checked(driver_.Reserve(&mapping.address, bytes_, 0, 0, 0), "cuMemAddressReserve"));
    CULET_RETURN_IF_ERROR(Checked(driver_.Map(mapping.address, bytes_, 0, handle, 0), "cuMemMap"));
    mapping.mapped = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CULET_RETURN_IF_ERROR(
        Checked(driver_.SetAccess(mapping.address, bytes_, &access, 1), "cuMemSetAccess"));
    pieces_.resize(mappings_.size());
    pieces_[static_cast<std::size_t>(rank)] = reinterpret_cast<void*>(mapping.address);
    return {};
  }

  Driver driver_;
  int device_;
  std::size_t bytes_ = 0;  // of each
  int file_ = -1;
  std::vector<Mapping> mappings_;
  std::vector<void*> pieces_;
};

// Whether this rank's GPU reaches those of the others, as far as this process sees them.
Status CheckReach(Communicator& ranks, int device) {
  const auto all = DevicesOfRanks(ranks, device);
  if (!all) return all.status();
  cudaDeviceProp properties{};
  int count = 0;
  Status reach = CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; reach.ok() && other < count; ++other) {
    if (other == device) continue;
    reach = CudaStatus(cudaGetDeviceProperties(&properties, other), "cudaGetDeviceProperties");
    for (std::size_t r = 0; reach.ok() && r < all->size(); ++r) {
      if (std::memcmp(&(*all)[r], &properties.uuid, sizeof(cudaUUID_t)) != 0) continue;
      int can = 0;
      reach = CudaStatus(cudaDeviceCanAccessPeer(&can, device, other), "cudaDeviceCanAccessPeer");
      if (reach.ok() && can == 0) {
        reach = Status(StatusCode::kUnsupported,
                       fmt::format("the GPU of rank {} cannot reach that of rank {} "
                                   "(cudaDeviceCanAccessPeer); take GPUs with NVLink or one PCIe "
                                   "root between them, or CULET_EXCHANGE=nccl",
                                   ranks.rank(), r));
      }
    }
  }
  return reach;
}

}  // namespace

Result<std::unique_ptr<PeerMemory>> PeerMemory::Create(Communicator& ranks, int device,
                                                       std::size_t bytes) {
  const DeviceScope scope(device);
  const auto agreed = [&](const Status& own) {
    const Status all = ranks.Agree(own, "peers");
    // What one rank lacks is lacking on all; but ranks that are gone are gone.
    if (all.ok() || !ranks.Check(false).ok()) return all;
    return Status(StatusCode::kUnsupported, all.message());
  };
  const auto driver = Driver::Load();
  CULET_RETURN_IF_ERROR(agreed(driver.status()));
  CULET_RETURN_IF_ERROR(agreed(CheckReach(ranks, device)));
  auto memory = std::make_unique<VirtualPeerMemory>(*driver, device, ranks.size());
  CULET_RETURN_IF_ERROR(agreed(memory->MakeOwn(ranks.rank(), bytes)));
  auto files = ranks.ShareFile(memory->file());
  if (!files) return files.status();
  Status mapped;
  for (int r = 0; r < ranks.size(); ++r) {
    const int file = (*files)[static_cast<std::size_t>(r)];
    if (file < 0) continue;
    if (mapped.ok()) mapped = memory->MapOther(r, file);
    close(file);
  }
  memory->CloseFile();
  CULET_RETURN_IF_ERROR(agreed(mapped));
  return std::unique_ptr<PeerMemory>(std::move(memory));
}

}  // namespace culet
