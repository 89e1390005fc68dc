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

/// Stops the build when OperandDesc has another field than those that VisitFields takes of each.
constexpr void NameOperandFields(const OperandDesc& operand) {
  [[maybe_unused]] const auto& [type, order, striding, align, pitch, pack, quant, scale_type,
                                scale_order, scale_align, scale_pitch, scale_pack, zero_type, num] =
      operand;
}

/// Calls `visit(name, field)` for enums and bools, `visit(name, field, range)` for integers, in the
/// order of a cache file: the weight's shape first, as people look for it. `Desc` is GemmDesc or
/// const GemmDesc. For a field that the first file format lacked, `visit.Newer(name, field, usual)`
/// or `visit.Newer(name, field, usual, range)` is called instead where there is one. Names are part
/// of the file format: never reuse one.
template <class Desc, class Visit>
constexpr void VisitFields(Desc& desc, Visit&& visit) {
  // A field that is added to GemmDesc stops the build here, until it is in the table below too.
  auto& [arch, a, b, c, d, epilogue, gate_order, type_bias, bias_axis, batch_dim, group_axis,
         group_active, group_experts, m, n, k, num, sm_budget, pdl, accumulate, determinism] = desc;
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
  visit("quant_a_group", a.quant.group_size, kCount);
  visit("quant_b_group", b.quant.group_size, kCount);
  visit("pack_a", a.pack, kCount);
  visit("pack_b", b.pack, kCount);
  visit("pack_u", a.scale_pack, kCount);
  visit("pack_v", b.scale_pack, kCount);
  visit("type_a", a.type);
  visit("type_b", b.type);
  visit("type_c", c.type);
  visit("type_d", d.type);
  visit("type_u", a.scale_type);
  visit("type_v", b.scale_type);
  visit("type_bias", type_bias);
  visit("quant_a", a.quant.type);
  visit("quant_b", b.quant.type);
  visit("order_a", a.order);
  visit("order_b", b.order);
  visit("order_c", c.order);
  visit("order_d", d.order);
  visit("order_u", a.scale_order);
  visit("order_v", b.scale_order);
  visit("striding_a", a.striding);
  visit("striding_b", b.striding);
  visit("striding_d", d.striding);
  visit("bias_axis", bias_axis);
  visit("epilogue", epilogue);
  visit("align_a", a.align, kAlignment);
  visit("align_b", b.align, kAlignment);
  visit("align_c", c.align, kAlignment);
  visit("align_d", d.align, kAlignment);
  visit("align_u", a.scale_align, kAlignment);
  visit("align_v", b.scale_align, kAlignment);
  visit("pdl", pdl);
  visit("accumulate", accumulate);
  visit("determinism", determinism);

  // Later fields are omitted from a file at their usual value, so that the text of an older problem
  // stays the same.
  const auto newer = [&](const char* name, auto& field, auto usual, const auto&... range) {
    if constexpr (requires { visit.Newer(name, field, usual, range...); }) {
      visit.Newer(name, field, usual, range...);
    } else {
      visit(name, field, range...);
    }
  };
  const OperandDesc usual;
  newer("striding_c", c.striding, usual.striding);
  newer("pack_c", c.pack, usual.pack, kCount);
  newer("pack_d", d.pack, usual.pack, kCount);
  newer("quant_c", c.quant.type, usual.quant.type);
  newer("quant_d", d.quant.type, usual.quant.type);
  newer("quant_c_group", c.quant.group_size, usual.quant.group_size, kCount);
  newer("quant_d_group", d.quant.group_size, usual.quant.group_size, kCount);
  newer("type_c_scale", c.scale_type, usual.scale_type);
  newer("type_d_scale", d.scale_type, usual.scale_type);
  newer("order_c_scale", c.scale_order, usual.scale_order);
  newer("order_d_scale", d.scale_order, usual.scale_order);
  newer("pack_c_scale", c.scale_pack, usual.scale_pack, kCount);
  newer("pack_d_scale", d.scale_pack, usual.scale_pack, kCount);
  newer("align_c_scale", c.scale_align, usual.scale_align, kAlignment);
  newer("align_d_scale", d.scale_align, usual.scale_align, kAlignment);
  newer("type_a_zero", a.zero_type, usual.zero_type);
  newer("type_b_zero", b.zero_type, usual.zero_type);
  newer("type_c_zero", c.zero_type, usual.zero_type);
  newer("type_d_zero", d.zero_type, usual.zero_type);
  newer("num_a", a.num, usual.num, kExtent);
  newer("num_b", b.num, usual.num, kExtent);
  newer("num_c", c.num, usual.num, kExtent);
  newer("num_d", d.num, usual.num, kExtent);
  newer("pitch_a", a.pitch, usual.pitch);
  newer("pitch_b", b.pitch, usual.pitch);
  newer("pitch_c", c.pitch, usual.pitch);
  newer("pitch_d", d.pitch, usual.pitch);
  newer("pitch_a_scale", a.scale_pitch, usual.scale_pitch);
  newer("pitch_b_scale", b.scale_pitch, usual.scale_pitch);
  newer("pitch_c_scale", c.scale_pitch, usual.scale_pitch);
  newer("pitch_d_scale", d.scale_pitch, usual.scale_pitch);
  newer("gate_order", gate_order, GateOrder::kEights);
  newer("group_active", group_active, 0, kCount);
  newer("group_experts", group_experts, 0, kCount);
}

constexpr bool InRange(int value, const FieldRange& range) noexcept {
  return value >= range.min && value <= range.max &&
         (!range.power_of_two || (value & (value - 1)) == 0);
}

}  // namespace culet
