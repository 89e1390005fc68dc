// Where a model's weights come from: a checkpoint, or a random generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "culet/decoder.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"
#include "culet/tensor.h"

namespace culet {

/// What a weight is for.
enum class WeightRole : std::uint8_t {
  kProduct,       ///< of a linear layer; may be E4M3
  kHead,          ///< of the logits: may be E4M3 in a checkpoint, but seldom is
  kPlain,         ///< embedding, router: floating point
  kTaps,          ///< of a convolution by columns: floating point, (rows, 1, cols) in a file
  kVector,        ///< a norm's gamma or a bias
  kGammaLessOne,  ///< a norm's gamma, stored less 1: the weight that is returned is the sum
};

/// A requested weight; see WeightSource::Get.
struct WeightRequest {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  WeightRole role = WeightRole::kProduct;
  /// Rows (elements of a vector) [first, first + rows) of the `of` that the tensor has; 0: all.
  std::int64_t first = 0, of = 0;
  /// The same of its columns.
  std::int64_t first_col = 0, of_cols = 0;
};

/// The weight (rows, cols) of one of `count` experts, or with cols 0 its bias (1, rows), out of a
/// tensor of all of them that lies the other way round: row i is column first + i * step of expert
/// `number`'s part of (count, cols, of), of biases (count, of). MXFP4 lies as it is wanted: row i
/// is row first + i * step of (count, of, cols).
struct StackedRequest {
  std::string name;
  std::int64_t count = 0, number = 0;
  std::int64_t rows = 0, cols = 0;
  std::int64_t first = 0, step = 1, of = 0;
  /// Columns [first_col, first_col + cols) of the `of_cols` that the weight has; 0: all.
  std::int64_t first_col = 0, of_cols = 0;
};

class WeightMemory;

/// The parts of a weight, of which each lies contiguously with those of weights that it joins.
/// kApart: what is never joined.
enum class WeightPart : std::uint8_t { kValues, kScales, kZeros, kApart };
struct PartBytes {
  std::size_t values = 0, scales = 0, zeros = 0;
};

class WeightSource {
 public:
  explicit WeightSource(WeightMemory& memory) : memory_(&memory) {}
  virtual ~WeightSource() = default;
  /// The weight `name` of (rows, cols); vectors have one row. The first error sticks, and later
  /// calls return nothing.
  virtual Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                     WeightRole role) = 0;
  /// The same of what WeightRequest::first and of select.
  virtual Weight GetPart(const WeightRequest& request) {
    return Get(request.name, request.rows, request.cols, request.role);
  }
  /// A vector of `cols` elements, the part of `range`, or of one; an absent weight if there is
  /// none.
  virtual Weight GetIfThere(const std::string& name, std::int64_t cols, ShardRange range) {
    static_cast<void>(name), static_cast<void>(cols), static_cast<void>(range);
    return {};
  }
  /// Says that a weight is another rank's to read.
  virtual void Leave(const std::string& name) { static_cast<void>(name); }
  /// The same of all whose names begin so.
  virtual void LeaveAll(const std::string& prefix) { static_cast<void>(prefix); }
  /// As Get, of floating-point tensors.
  virtual Weight GetStacked(const StackedRequest& request);
  /// The Weight::type that GetStacked will return for all experts, and that has no scales; kNull if
  /// that is not known.
  virtual DataType TypeOfStacked(const StackedRequest& request) const {
    static_cast<void>(request);
    return DataType::kNull;
  }
  /// Weight `name` of (heads * (keys + values), k), where each head has `keys` rows, then `values`:
  /// the first ones, transposed, as (heads * k, keys), and the others as (heads * values, k). What
  /// is quantised becomes bfloat16. `range`: which heads of all that there are.
  virtual std::pair<Weight, Weight> GetHeadParts(const std::string& name, std::int64_t heads,
                                                 std::int64_t keys, std::int64_t values,
                                                 std::int64_t k, ShardRange range) {
    static_cast<void>(range);
    return {Get(name + "[keys]", heads * k, keys, WeightRole::kPlain),
            Get(name + "[values]", heads * values, k, WeightRole::kPlain)};
  }
  /// A vector of `cols` ones, in float32. Errors: as WeightMemory::Copy.
  Result<Weight> Ones(std::int64_t cols);
  virtual const Status& status() const noexcept = 0;
  /// Bytes of tensors that were read, or are where they lie.
  virtual std::size_t read_bytes() const { return 0; }
  /// The Weight::type that Get would return; kNull if it returns nothing.
  virtual DataType TypeOf(const std::string& name, WeightRole role) const = 0;

  /// What shares a scale of the weights that are E4M3: kB of 128, kRow or kTensor.
  virtual QuantDesc QuantOfE4m3() const { return {QuantType::kB, 128}; }

  /// Bytes of the parts of a weight of codes; nothing: it is not to be joined.
  virtual std::optional<PartBytes> BytesOfCodes(const WeightRequest& request) const {
    static_cast<void>(request);
    return std::nullopt;
  }

  /// Get for each, in order. On a device that does not read host memory they (and their scales) are
  /// stored contiguously if their rows can be joined (one type and length, E4M3 in whole blocks),
  /// so that one product serves all.
  std::vector<Weight> GetJoined(const std::vector<WeightRequest>& requests);

  /// GetStacked of experts [first, end) for each request, in order, contiguously where GetJoined
  /// would. Requires: requests of as many rows and columns.
  std::vector<std::vector<Weight>> GetJoined(const std::vector<StackedRequest>& requests, int first,
                                             int end);

 protected:
  WeightMemory& memory() const noexcept { return *memory_; }

 private:
  WeightMemory* memory_;
};

/// All weights of a model, by the names that its checkpoints use.
Result<DecoderWeights> BindDecoder(const DecoderConfig& config, WeightSource& source);

/// Memory that a model's weights own, beside what lies in mapped files: a few large pieces, which
/// large pages fit.
class WeightMemory {
 public:
  explicit WeightMemory(DeviceMemory& memory) : memory_(memory) {}
  /// Copies host bytes to the device. Errors: as DeviceMemory; as Put.
  Result<DevicePtr> Copy(const void* data, std::size_t bytes,
                         WeightPart part = WeightPart::kValues);
  /// The same in two steps: room for so many bytes, and what goes there, in pieces.
  /// Errors: FAILED_PRECONDITION when it is to stop.
  Result<DevicePtr> Place(std::size_t bytes, WeightPart part);
  Status Put(DevicePtr to, const void* data, std::size_t bytes);

  /// Until EndJoin, copies of a part are contiguous without gaps, with so many bytes of each.
  /// Errors: as DeviceMemory.
  Status BeginJoin(const PartBytes& bytes);
  void EndJoin() noexcept { joining_ = false; }
  DeviceMemory& memory() const noexcept { return memory_; }
  /// Called after each copy with the bytes until then. `stop` is asked before each.
  void SetProgress(std::function<void(std::size_t)> on_copy, std::function<bool()> stop) {
    on_copy_ = std::move(on_copy);
    stop_ = std::move(stop);
  }

 private:
  Result<DevicePtr> Take(std::size_t bytes);

  DeviceMemory& memory_;
  std::function<void(std::size_t)> on_copy_;
  std::function<bool()> stop_;
  std::size_t copied_ = 0;
  bool joining_ = false;
  DevicePtr next_values_ = 0, next_scales_ = 0, next_zeros_ = 0;  // while joining
  std::vector<DeviceBuffer> buffers_;
  DevicePtr next_ = 0;    // in the last buffer
  std::size_t left_ = 0;  // bytes behind it
};

}  // namespace culet
