// Any text as a config.json: an error that says why, or a config that a graph can be built from.
#include <string_view>

#include "culet/decoder.h"
#include "culet/model.h"
#include "fuzz.h"

using culet::FuzzRequire;

namespace {

void Check(const culet::DecoderConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  FuzzRequire(config.vocab > 0 && config.hidden > 0 && config.layers > 0, "sizes are above 0");
  FuzzRequire(config.heads > 0 && config.kv_heads > 0 && config.head_dim > 0, "so are heads");
  FuzzRequire(config.heads % config.kv_heads == 0, "key-value heads divide heads");
  FuzzRequire(config.windows.size() == layers && config.sparse.size() == layers, "one a layer");
  FuzzRequire(config.rms_norm_eps > 0, "epsilon is above 0");
  bool sparse = false, dense = false;
  for (const bool layer : config.sparse) (layer ? sparse : dense) = true;
  FuzzRequire(!dense || config.intermediate > 0, "a dense layer has a width");
  FuzzRequire(!sparse || (config.moe_intermediate > 0 && config.routing.active > 0 &&
                          config.routing.active <= config.experts),
              "a sparse layer has experts");
  for (const int window : config.windows) FuzzRequire(window >= 0, "windows are not negative");
  const culet::RopeParams& rope = config.rope;
  FuzzRequire(rope.dims >= 2 && rope.dims % 2 == 0 && rope.dims <= config.head_dim, "pairs turn");
  constexpr int kMostDims = 1 << 16;  // no more memory than that
  if (rope.dims > kMostDims) return;
  for (const double frequency : culet::RopeFrequencies(rope)) {
    FuzzRequire(frequency >= 0 && frequency < 1e300, "frequencies are numbers");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = culet::ParseDecoderConfig(text, "fuzz");
  if (config.ok()) {
    Check(*config);
  } else {
    FuzzRequire(config.status().message().size() > 4, "an error has a reason");
  }
  const auto shapes = culet::ParseModelShapes(text, "fuzz");
  if (!shapes.ok()) {
    FuzzRequire(shapes.status().message().size() > 4, "an error has a reason");
    return 0;
  }
  for (const culet::ModelProduct& product : shapes->products) {
    FuzzRequire(product.n > 0 && product.k > 0 && product.layers > 0, "products have sizes");
  }
  return 0;
}
