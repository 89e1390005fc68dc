#include "decode_report.h"

#include <string>

#include <fmt/format.h>

#include "interrupt.h"
#include "output.h"

namespace culet::cli {
namespace {

constexpr double kPercent = 100;

std::string Percent(double share) { return fmt::format("{:.1f} %", kPercent * share); }

double ProductShare(const StepTimes& times) {
  return times.nodes_us > 0 ? times.product_us / times.nodes_us : 0;
}

void PrintStep(const char* what, const StepTimes& times) {
  using Align = Table::Align;
  if (times.nodes_us == 0) return;  // interrupted
  Print("\n{}, {}: {}; its {}: {}, {} of that in products\n", what,
        Counted(static_cast<std::size_t>(times.tokens), "token"), ShownTime(times.step_us),
        times.among ? "launches among each other" : "nodes one by one", ShownTime(times.nodes_us),
        Percent(ProductShare(times)));
  Table nodes({{"operation"},
               {"kernel"},
               {"nodes", Align::kRight},
               {"time", Align::kRight},
               {"share", Align::kRight}});
  for (const NodeGroup& group : times.groups) {
    nodes.Add({group.op, group.kernel, std::to_string(group.nodes), ShownTime(group.time_us),
               Percent(group.time_us / times.nodes_us)});
  }
  Print("{}", nodes.ToString());
  Table products({{"product m x n x k"},
                  {"B"},
                  {"nodes", Align::kRight},
                  {"in the graph", Align::kRight},
                  {"alone", Align::kRight},
                  {"speed", Align::kRight}});
  for (const ProductGroup& group : times.products) {
    products.Add({fmt::format("{} x {} x {}", group.desc.m, group.desc.n, group.desc.k),
                  ToString(group.desc.b.type), std::to_string(group.nodes),
                  ShownTime(group.graph_us), ShownTimeOrDash(group.alone_us),
                  group.alone_us > 0 ? Percent(group.alone_us / group.graph_us) : "-"});
  }
  Print("{}", products.ToString());
  if (times.ProductSpeed() > 0) {
    Print("products in the graph run at {} of their speed alone\n", Percent(times.ProductSpeed()));
  }
}

Json StepJson(const StepTimes& times) {
  Json groups = Json::array(), products = Json::array();
  for (const NodeGroup& group : times.groups) {
    groups.push_back({{"op", group.op},
                      {"kernel", group.kernel},
                      {"nodes", group.nodes},
                      {"time_us", Number(group.time_us)}});
  }
  for (const ProductGroup& group : times.products) {
    products.push_back({{"m", group.desc.m},
                        {"n", group.desc.n},
                        {"k", group.desc.k},
                        {"type_b", ToString(group.desc.b.type)},
                        {"nodes", group.nodes},
                        {"graph_us", Number(group.graph_us)},
                        {"alone_us", Number(group.alone_us)}});
  }
  return {{"tokens", times.tokens},
          {"step_us", Number(times.step_us)},
          {"nodes_us", Number(times.nodes_us)},
          {"among_others", times.among},
          {"product_share", Number(ProductShare(times))},
          {"product_speed", Number(times.ProductSpeed())},
          {"nodes", std::move(groups)},
          {"products", std::move(products)}};
}

}  // namespace

void PrintDecode(const DeviceInfo& device, const DecodeBenchOptions& options,
                 const DecodeMeasurement& m, bool complete, bool json) {
  const double tokens_per_s = options.batch / (m.decode.step_us * 1e-6);
  const double prefill_per_s = options.prefill / (m.prefill.step_us * 1e-6);
  // What is held beyond weights and cache, relative to the weights.
  const double overhead = (m.peak_bytes - m.weight_bytes - m.cache_bytes) / m.weight_bytes;
  if (json) {
    PrintJson({{"device", device.device_class},
               {"config", options.config},
               {"format", ToString(options.format)},
               {"interrupted", InterruptSignal() != 0},
               {"complete", complete},
               {"batch", options.batch},
               {"context", options.context},
               {"read_gbps", Number(m.rates.read_gbps)},
               {"gflops", Number(m.rates.gflops)},
               {"decode_tokens_per_s", Number(tokens_per_s)},
               {"prefill_tokens_per_s", Number(prefill_per_s)},
               {"read_share", Number(m.read_share)},
               {"not_recorded", m.not_recorded},
               {"weight_bytes", Number(m.weight_bytes)},
               {"bytes_a_token", Number(m.bytes_a_token)},
               {"cache_bytes", Number(m.cache_bytes)},
               {"cache_read_bytes", Number(m.cache_read_bytes)},
               {"peak_bytes", m.peak_bytes > 0 ? Number(m.peak_bytes) : Json()},
               {"decode", StepJson(m.decode)},
               {"prefill", StepJson(m.prefill)}});
    return;
  }
  Print("{} ({})", device.name, device.device_class);
  if (m.rates.read_gbps > 0 && m.read_share > 0) {
    Print(", {:.1f} GB/s read, {:.0f} GFLOP/s, measured", m.rates.read_gbps, m.rates.gflops);
  }
  Print("\n");
  if (m.weight_bytes == 0) {
    Print("{}, {}, random weights: ended before they were complete\n", options.config,
          ToString(options.format));
    return;
  }
  Print("{}, {}, random weights: {}, of which a token reads {}; cache of {}: {}\n", options.config,
        ToString(options.format), ShownBytes(m.weight_bytes), ShownBytes(m.bytes_a_token),
        ToString(options.cache_type), ShownBytes(m.cache_bytes));
  if (m.decode.step_us > 0) {
    Print("decode at context {}, batch {}: {:.2f} tokens/s", options.context, options.batch,
          tokens_per_s);
    if (m.read_share > 0) {
      Print("; a step reads the weights and {} of the cache: {} of the read rate",
            ShownBytes(m.cache_read_bytes), Percent(m.read_share));
    }
    Print("\n");
    if (device.arch != 0 && !m.not_recorded.empty()) {
      Print("its steps were launched node by node: {}\n", m.not_recorded);
    }
  }
  if (m.prefill.step_us > 0) {
    Print("prefill of {} tokens: {:.1f} tokens/s\n", options.prefill, prefill_per_s);
  }
  if (m.peak_bytes > 0) {
    Print("peak memory {}: weights + cache + {} of the weights\n", ShownBytes(m.peak_bytes),
          Percent(overhead));
  }
  PrintStep("decode", m.decode);
  PrintStep("prefill", m.prefill);
}

}  // namespace culet::cli
