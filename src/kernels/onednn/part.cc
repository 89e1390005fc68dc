#include "kernels/onednn/part.h"

namespace culet::onednn {
namespace {

int TypeCode(DataType type) noexcept { return type == DataType::kBfloat16 ? kBfloat16 : kFloat32; }

int MakeMatrix(const Api& api, int rows, int cols, Order order, std::int64_t ld, int type,
               OwnedMemoryDesc& desc) {
  const std::int64_t sizes[] = {rows, cols};
  std::int64_t strides[] = {order == Order::kRowMajor ? ld : 1, order == Order::kRowMajor ? 1 : ld};
  // The library takes a matrix for one that it met before where only strides of a single row or
  // column differ, and then keeps to the way and the scratchpad that it chose there. One matrix
  // always has one description, so that what a plan needs does not depend on plans before it.
  if (cols == 1) strides[1] = 1;
  if (rows == 1) strides[0] = strides[1] == 1 ? cols : 1;
  return api.memory_desc_create_with_strides(desc.out(), 2, sizes, type, strides);
}

}  // namespace

int Part::Describe(const Library& library, const Operands& operands, int rows, int cols,
                   DataType type_d) {
  const Api& api = library.api;
  OwnedAttributes attributes(api);
  const int type = TypeCode(operands.type);
  if (const int e = MakeMatrix(api, rows, operands.k, operands.order_a, operands.lda, type, a_)) {
    return e;
  }
  if (const int e = MakeMatrix(api, operands.k, cols, operands.order_b, operands.ldb, type, b_)) {
    return e;
  }
  if (const int e = MakeMatrix(api, rows, cols, Order::kRowMajor, cols, TypeCode(type_d), d_)) {
    return e;
  }
  if (const int e = api.primitive_attr_create(attributes.out())) return e;
  if (const int e = api.primitive_attr_set_scratchpad_mode(attributes.get(), kUserScratchpad)) {
    return e;
  }
  if (const int e = api.matmul_primitive_desc_create(
          desc_.out(), library.engine, a_.get(), b_.get(), nullptr, d_.get(), attributes.get())) {
    return e;
  }
  scratchpad_ = api.primitive_desc_query_md(desc_.get(), kQueryScratchpad, 0);
  scratchpad_bytes_ = scratchpad_ != nullptr ? api.memory_desc_get_size(scratchpad_) : 0;
  return kSuccess;
}

int Part::Create(const Library& library) {
  return library.api.primitive_create(primitive_.out(), desc_.get());
}

int Part::Execute(const Library& library, Stream stream, const void* A, const void* B, void* D,
                  void* scratchpad) const {
  const Api& api = library.api;
  OwnedMemory of_a(api), of_b(api), of_d(api), of_scratchpad(api);
  // The library takes operands that it only reads without const.
  const std::pair<OwnedMemory*, std::pair<MemoryDesc, const void*>> operands[] = {
      {&of_a, {a_.get(), A}}, {&of_b, {b_.get(), B}}, {&of_d, {d_.get(), D}}};
  for (const auto& [memory, operand] : operands) {
    if (const int e = api.memory_create(memory->out(), operand.first, library.engine,
                                        const_cast<void*>(operand.second))) {
      return e;
    }
  }
  Argument arguments[] = {{kArgSource, of_a.get()},
                          {kArgWeights, of_b.get()},
                          {kArgDestination, of_d.get()},
                          {kArgScratchpad, nullptr}};
  int count = 3;
  if (scratchpad_bytes_ > 0) {
    if (const int e =
            api.memory_create(of_scratchpad.out(), scratchpad_, library.engine, scratchpad)) {
      return e;
    }
    arguments[count++].memory = of_scratchpad.get();
  }
  return api.primitive_execute(primitive_.get(), stream, count, arguments);
}
}  // namespace culet::onednn
