// The fields of GemmDesc in one table: the cache's key, its file form and its checks are all made
// from it, so that none of them can forget a field.
#pragma once

#include <limits>

#include "culet/desc.h"

namespace culet {

/// The values that an integer field of GemmDesc may have.
struct FieldRange {
  int min = 0;
  int max = std::numeric_limits<int>::max();
  bool power_of_two = false;
};

/// Calls `visit(name, field)` for enums and bools, `visit(name, field, range)` for integers, in the
/// order of a cache file: the weight's shape first, as people look for it. `Desc` is GemmDesc or
/// const GemmDesc. Names are part of the file format: never reuse one.
template <class Desc, class Visit>
constexpr void VisitFields(Desc& desc, Visit&& visit) {
  // A field that is added to GemmDesc stops the build here, until it is in the table below too.
  auto& [arch, type_a, type_b, type_c, type_d, order_a, order_b, order_c, order_d, striding_a,
         striding_b, striding_d, pack_a, pack_b, pack_u, pack_v, quant_a, quant_b, type_u, type_v,
         order_u, order_v, epilogue, type_bias, bias_axis, align_a, align_b, align_u, align_v,
         align_c, align_d, batch_dim, group_axis, m, n, k, num, sm_budget, pdl, accumulate,
         determinism] = desc;
  constexpr FieldRange kExtent{.min = 1};
  constexpr FieldRange kCount{};
  constexpr FieldRange kAlignment{.min = 1, .max = 16, .power_of_two = true};
  visit("n", n, kExtent);
  visit("k", k, kExtent);
  visit("m", m, kExtent);
  visit("num", num, kExtent);
  visit("batch_dim", batch_dim, FieldRange{.max = 1});
  visit("group_axis", group_axis, FieldRange{.min = -1, .max = 1});
  visit("arch", arch, kCount);
  visit("sm_budget", sm_budget, kCount);
  visit("quant_a_group", quant_a.group_size, kCount);
  visit("quant_b_group", quant_b.group_size, kCount);
  visit("pack_a", pack_a, kCount);
  visit("pack_b", pack_b, kCount);
  visit("pack_u", pack_u, kCount);
  visit("pack_v", pack_v, kCount);
  visit("type_a", type_a);
  visit("type_b", type_b);
  visit("type_c", type_c);
  visit("type_d", type_d);
  visit("type_u", type_u);
  visit("type_v", type_v);
  visit("type_bias", type_bias);
  visit("quant_a", quant_a.type);
  visit("quant_b", quant_b.type);
  visit("order_a", order_a);
  visit("order_b", order_b);
  visit("order_c", order_c);
  visit("order_d", order_d);
  visit("order_u", order_u);
  visit("order_v", order_v);
  visit("striding_a", striding_a);
  visit("striding_b", striding_b);
  visit("striding_d", striding_d);
  visit("bias_axis", bias_axis);
  visit("epilogue", epilogue);
  visit("align_a", align_a, kAlignment);
  visit("align_b", align_b, kAlignment);
  visit("align_c", align_c, kAlignment);
  visit("align_d", align_d, kAlignment);
  visit("align_u", align_u, kAlignment);
  visit("align_v", align_v, kAlignment);
  visit("pdl", pdl);
  visit("accumulate", accumulate);
  visit("determinism", determinism);
}

constexpr bool InRange(int value, const FieldRange& range) noexcept {
  return value >= range.min && value <= range.max &&
         (!range.power_of_two || (value & (value - 1)) == 0);
}

}  // namespace culet
