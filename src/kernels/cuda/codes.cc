#include "kernels/cuda/codes.h"

namespace culet {
namespace {

bool IsFloat(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

}  // namespace

GemmDesc WithoutCodes(const GemmDesc& problem) noexcept {
  GemmDesc plain = problem;
  plain.b.type = DataType::kFloat32;
  plain.b.quant = {};
  return plain;
}

Feasibility WhyNotCodes(const GemmDesc& p, int group_step, bool blocks) noexcept {
  constexpr int kPiece = 16;  // bytes that are copied at a time
  if (p.a.quant.type != QuantType::kNone) return Feasibility::Refuse("takes no scales of A");
  if (p.a.order != Order::kRowMajor || p.b.order != Order::kColMajor) {
    return Feasibility::Refuse("takes rows of A and columns of B with k contiguous");
  }
  if (p.a.align < kPiece || p.b.align < kPiece) {
    return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes");
  }
  if (BytesOf(p.b.type, p.k) % kPiece != 0 || (IsSubByte(p.b.type) && p.k % 2 != 0)) {
    return Feasibility::Refuse("a column of B must be a multiple of 16 bytes");
  }
  const QuantType quant = p.b.quant.type;
  const bool groups = (quant == QuantType::kK || (blocks && quant == QuantType::kB)) &&
                      p.b.quant.group_size % group_step == 0;
  const bool whole = quant == QuantType::kRow || (blocks && quant == QuantType::kTensor);
  if (!groups && !whole) {
    return Feasibility::Refuse(
        "takes scales of a column, or of groups of a multiple of its step along k; of E4M3 alone "
        "also of blocks and of the tensor");
  }
  if (!IsFloat(p.b.scale_type) && p.b.scale_type != DataType::kFloat8_ue8m0) {
    return Feasibility::Refuse("takes float32, float16, bfloat16 and UE8M0 scales only");
  }
  if (p.b.zero_type != DataType::kNull && p.b.zero_type != DataType::kUint4 &&
      !IsFloat(p.b.zero_type)) {
    return Feasibility::Refuse("takes zero points of uint4, float32, float16 and bfloat16 only");
  }
  if (!IsFloat(p.d.type) || (p.c.type != DataType::kNull && !IsFloat(p.c.type))) {
    return Feasibility::Refuse("C and D hold float32, float16 or bfloat16");
  }
  if (p.sm_budget > 0) {
    return Feasibility::Refuse("spreads over all multiprocessors; no budget");
  }
  return Feasibility::Ok();
}

}  // namespace culet
