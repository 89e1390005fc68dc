// One oneDNN primitive: a product of one shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "culet/types.h"
#include "kernels/onednn/library.h"

namespace culet::onednn {

/// An object of the library, destroyed by the function that Api names.
template <class Object, int (*Api::*kDestroy)(Object)>
class Owned {
 public:
  explicit Owned(const Api& api) noexcept : api_(&api) {}
  Owned(Owned&& other) noexcept
      : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  ~Owned() {
    if (object_ != nullptr) static_cast<void>((api_->*kDestroy)(object_));
  }

  Object get() const noexcept { return object_; }
  Object* out() noexcept { return &object_; }

 private:
  const Api* api_;
  Object object_ = nullptr;
};

using OwnedMemoryDesc = Owned<MemoryDesc, &Api::memory_desc_destroy>;
using OwnedAttributes = Owned<Attributes, &Api::primitive_attr_destroy>;
using OwnedPrimitiveDesc = Owned<PrimitiveDesc, &Api::primitive_desc_destroy>;
using OwnedPrimitive = Owned<Primitive, &Api::primitive_destroy>;
using OwnedMemory = Owned<Memory, &Api::memory_destroy>;
using OwnedStream = Owned<Stream, &Api::stream_destroy>;

/// What distinguishes the primitives of a problem.
struct Operands {
  int k;
  DataType type;  ///< of A and B
  Order order_a, order_b;
  std::int64_t lda, ldb;
};

/// One primitive with the descriptions of its operands. Its functions return a dnnl_status_t.
class Part {
 public:
  explicit Part(const Api& api) : a_(api), b_(api), d_(api), desc_(api), primitive_(api) {}

  /// Describes the product of rows x k and k x cols; D is row-major and dense. Requires: OneThread.
  int Describe(const Library& library, const Operands& operands, int rows, int cols,
               DataType type_d);
  /// Bytes that Execute needs beside the operands. Requires: Describe.
  std::size_t scratchpad_bytes() const noexcept { return scratchpad_bytes_; }

  /// Makes what Describe described. Requires: OneThread.
  int Create(const Library& library);

  /// D = A B in the calling thread. Several threads may call at a time, each with its own stream
  /// and scratchpad. Requires: OneThread, Create.
  int Execute(const Library& library, Stream stream, const void* A, const void* B, void* D,
              void* scratchpad) const;

 private:
  OwnedMemoryDesc a_, b_, d_;
  OwnedPrimitiveDesc desc_;
  OwnedPrimitive primitive_;
  MemoryDesc scratchpad_ = nullptr;  // belongs to desc_
  std::size_t scratchpad_bytes_ = 0;
};

}  // namespace culet::onednn
