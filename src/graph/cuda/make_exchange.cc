// MakePeerExchange of a build with CUDA.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/error.h"
#include "cuda/peer_memory.h"
#include "cuda/rank_device.h"
#include "culet/ranks.h"
#include "graph/cuda/peer_exchange.h"

namespace culet {

Result<std::unique_ptr<RankExchange>> MakePeerExchange(Communicator& ranks, DeviceMemory& memory,
                                                       std::shared_ptr<RankExchange> other,
                                                       const ExchangeChoice& choice) {
  const auto device = DeviceOfRank(ranks, memory);
  if (!device) return device.status();
  int units = 0;
  CULET_RETURN_IF_ERROR(ranks.Agree(
      CudaStatus(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, *device),
                 "cudaDeviceGetAttribute"),
      "counted"));
  std::vector<int> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> bytes(all.size(), sizeof(int));
  CULET_RETURN_IF_ERROR(ranks.AllGather(&units, bytes, all.data()));
  cuda_ops::PeerSetup setup;
  auto pieces = PeerMemory::Create(ranks, *device, cuda_ops::PeerAreaBytes(ranks.size(), choice));
  if (!pieces) return pieces.status();
  setup.areas = (*pieces)->pieces();
  setup.owner = std::shared_ptr<PeerMemory>(*std::move(pieces));
  setup.other = std::move(other);
  setup.choice = choice;
  setup.device = *device;
  setup.units = *std::ranges::min_element(all);
  auto made = cuda_ops::MakePeerExchangeOver(ranks, memory, std::move(setup));
  // Nobody sends before all are ready.
  CULET_RETURN_IF_ERROR(ranks.Agree(made.status(), "exchanges"));
  return made;
}

}  // namespace culet
