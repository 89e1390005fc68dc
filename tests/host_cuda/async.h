// Hopper's asynchronous instructions on the CPU, from their definitions in the PTX ISA: barriers in
// shared memory, named ones and a cluster's, tensor copies, warpgroup products. What is
// asynchronous happens at any time until it has been waited for: a copy that nobody waits for comes
// too late or too early, and an accumulator is NaN until its product was waited for.
#pragma once

#include <cstdint>
#include <span>

namespace culet::host_cuda {

// ---- mbarriers
void InitBarrier(std::uint64_t* barrier, std::uint32_t arrivals);
void Arrive(std::uint64_t* barrier);
void ArriveExpecting(std::uint64_t* barrier, std::uint32_t bytes);
void ArriveAt(std::uint64_t* barrier, std::uint32_t rank);  ///< of another block of the cluster
bool HasCompleted(std::uint64_t* barrier, std::uint32_t parity);
void AwaitPhase(std::uint64_t* barrier, std::uint32_t parity);
/// Arrives once the running thread's copies (CopyAsync) so far have happened.
void ArriveAfterCopies(std::uint64_t* barrier);
/// Waits for those.
void AwaitArrivals();

// ---- barriers of some threads of a block, and of a cluster
/// The or of all `flag`; false where the thread does not wait.
bool MeetNamed(int id, int threads, bool flag, bool waits);
void ArriveInCluster();
void AwaitArrivedCluster();

// ---- other blocks' shared memory
std::uint32_t AddressInCluster(std::uint32_t address, std::uint32_t rank);
/// Stores to an address of the cluster and completes as many bytes on a barrier of the same block.
void StoreToCluster(std::uint32_t to, std::span<const float> values, std::uint32_t barrier);

// ---- tensor copies
/// The box at `at`, to the same place in all blocks of `mask`.
void LoadBox(void* to, const void* map, std::uint64_t* barrier, std::span<const int> at,
             std::uint32_t mask);
/// `bytes` in a row, without a map.
void LoadBytes(void* to, const void* from, int bytes, std::uint64_t* barrier);
void StoreBox(const void* map, const void* from, std::span<const int> at);
void CommitStores();
void AwaitStores(int pending);
void ReadMap(const void* map);

// ---- warpgroup products: 64 rows, `columns` columns, 32 bytes of K
enum class Operands { kE4m3, kBf16, kF16 };
void FenceProducts();
/// Both operands are descriptors. Without `adds` the product overwrites d.
void Multiply(Operands type, int columns, bool adds, float* d, std::uint64_t a, std::uint64_t b);
/// A lies in registers, B with its columns side by side.
void MultiplyRegisters(Operands type, int columns, bool adds, float* d, const std::uint32_t (&a)[4],
                       std::uint64_t b);
void CommitProducts();
void AwaitProducts(int pending);

}  // namespace culet::host_cuda
