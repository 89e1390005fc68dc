// Where a model's weights come from: a checkpoint, or chance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"
#include "culet/tensor.h"

namespace culet {

/// What a weight is for.
enum class WeightRole : std::uint8_t {
  kProduct,  ///< of a linear layer; may be E4M3
  kPlain,    ///< embedding, head, router: floating point
  kVector,   ///< a norm's gamma or a bias
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The weight `name` of (rows, cols); vectors have one row. The first error sticks, and later
  /// calls return nothing.
  virtual Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                     WeightRole role) = 0;
  virtual const Status& status() const noexcept = 0;
};

/// All weights of a model, by the names that its checkpoints use.
Result<DecoderWeights> BindDecoder(const DecoderConfig& config, WeightSource& source);

/// Memory that a model's weights own, beside what lies in mapped files: a few large pieces, which
/// large pages fit.
class WeightMemory {
 public:
  explicit WeightMemory(DeviceMemory& memory) : memory_(memory) {}
  /// Copies host bytes to the device. Errors: as DeviceMemory.
  Result<DevicePtr> Copy(const void* data, std::size_t bytes);
  DeviceMemory& memory() const noexcept { return memory_; }

 private:
  DeviceMemory& memory_;
  std::vector<DeviceBuffer> buffers_;
  DevicePtr next_ = 0;    // in the last buffer
  std::size_t left_ = 0;  // bytes behind it
};

}  // namespace culet
