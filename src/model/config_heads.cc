#include "model/config_heads.h"

#include <fmt/format.h>

namespace culet {

HeadSizes ReadHeads(ConfigReader& config, int hidden, const HeadDefaults& defaults) {
  HeadSizes sizes;
  sizes.heads = config.IntOrDefault("num_attention_heads", defaults.heads);
  const bool usual = defaults.kv_heads == 0 || config.Stands("num_key_value_heads");
  sizes.kv_heads = usual ? config.IntOr({"num_key_value_heads"}, sizes.heads) : defaults.kv_heads;
  config.Require(
      sizes.heads % sizes.kv_heads == 0,
      fmt::format("num_attention_heads is {}, not a multiple of num_key_value_heads {}{}",
                  sizes.heads, sizes.kv_heads,
                  usual ? "" : ", the default of an architecture without the key"));
  if (config.Has({defaults.head_dim_key})) {
    sizes.head_dim = config.Int({defaults.head_dim_key});
  } else if (defaults.head_dim != 0) {
    sizes.head_dim = defaults.head_dim;
  } else {
    config.Require(hidden % sizes.heads == 0,
                   fmt::format("hidden_size is {}, not a multiple of num_attention_heads {}, "
                               "and head_dim is missing",
                               hidden, sizes.heads));
    sizes.head_dim = hidden / sizes.heads;
  }
  return sizes;
}

}  // namespace culet
