// Gated kernels with one behind them that quantises, as sm90::Quantised makes them for the library.
#pragma once

#include <memory>
#include <utility>

#include "bench/sm90_data.cuh"
#include "kernels/sm90/product/quantise_rows.h"

namespace culet::bench {
namespace {

Launcher PlanQuantised(const Candidate& gated, const Problem& p) {
  Problem first = p;
  first.epilogue.d_type = OutputType::kF32;
  first.epilogue.d_scale = nullptr;
  first.ldd = p.n / 2;
  const std::shared_ptr<float> d(Allocate<float>(size_t(p.m) * first.ldd),
                                 [](float* old) { CHECK(cudaFree(old)); });
  first.d = d.get();
  Launcher product = gated.plan(first);
  if (!product || sm90::LoadQuantiseRows() != cudaSuccess) return {};
  const sm90::QuantiseRowsParams rest{.x = d.get(),
                                      .d = p.d,
                                      .scales = p.epilogue.d_scale,
                                      .ldx = first.ldd,
                                      .ldd = p.ldd,
                                      .m = p.m,
                                      .n = p.n / 2,
                                      .scale_row = p.epilogue.d_scale_row,
                                      .scale_block = p.epilogue.d_scale_block,
                                      .sms = p.sms};
  return [product = std::move(product), rest, d](cudaStream_t stream) {
    const cudaError_t error = product(stream);
    return error != cudaSuccess ? error : sm90::LaunchQuantiseRows(rest, stream);
  };
}

Candidate Quantised(const Candidate& gated) {
  Candidate quantised = gated;
  quantised.id += "/quantise";
  quantised.epilogue = EpilogueKind::kGatedQuant;
  quantised.plan = [gated](const Problem& p) { return PlanQuantised(gated, p); };
  return quantised;
}

}  // namespace
}  // namespace culet::bench
