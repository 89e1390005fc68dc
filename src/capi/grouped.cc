// Grouped products of the C interface.
#include "culet/grouped.h"

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/versioned.h"
#include "culet/culet.h"

namespace culet::capi {
namespace {

Status ToGrouped(const culet_grouped& given, GroupedArgs& args) {
  CULET_RETURN_IF_ERROR(ToEnum("type", given.type, args.type));
  CULET_RETURN_IF_ERROR(ToEnum("d_type", given.d_type, args.d_type));
  CULET_RETURN_IF_ERROR(ToEnum("bias_type", given.bias_type, args.bias_type));
  CULET_RETURN_IF_ERROR(ToEnum("epilogue", given.epilogue, args.epilogue));
  args.groups = given.groups;
  args.rows = given.rows;
  args.a_rows = given.a_rows;
  args.n = given.n;
  args.k = given.k;
  args.A = given.A;
  args.lda = given.lda;
  args.U = given.U;
  args.u_row = given.u_row;
  args.u_block = given.u_block;
  args.B = given.B;
  args.V = given.V;
  args.starts = given.starts;
  args.counts = given.counts;
  args.index = given.index;
  args.bias = given.bias;
  args.pdl = given.pdl != 0;
  args.D = given.D;
  args.ldd = given.ldd;
  args.expected_tokens = given.expected_tokens;
  args.expected_active = given.expected_active;
  args.expected_experts = given.expected_experts;
  args.sm_budget = given.sm_budget;
  return {};
}

}  // namespace
}  // namespace culet::capi

culet_status culet_grouped_gemm(culet_engine* engine, const culet_grouped* product, void* stream) {
  using culet::Status;
  return culet::capi::Guarded([&]() -> Status {
    if (engine == nullptr) return culet::capi::Null("engine");
    culet_grouped read;
    CULET_RETURN_IF_ERROR(culet::capi::Read("product", product, read));
    culet::GroupedArgs args;
    CULET_RETURN_IF_ERROR(culet::capi::ToGrouped(read, args));
    return culet::GroupedGemm(engine->gemm, args, static_cast<cudaStream_t>(stream));
  });
}
