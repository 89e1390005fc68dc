// The attention heads of a config.json: how many there are, and their size.
#pragma once

#include "model/config_reader.h"

namespace culet {

/// What an architecture has where a key is missing.
struct HeadDefaults {
  int heads = 0;     ///< 0: the key must be there
  int kv_heads = 0;  ///< 0: as many as heads, which null always means
  int head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  const char* head_dim_key = "head_dim";
};
inline constexpr HeadDefaults kUsualHeads{};
inline constexpr HeadDefaults kMistralHeads{.kv_heads = 8};  // Mixtral, too
inline constexpr HeadDefaults kQwen3Heads{.head_dim = 128};
inline constexpr HeadDefaults kQwen3MoeHeads{.kv_heads = 4};

struct HeadSizes {
  int heads = 1, kv_heads = 1, head_dim = 1;
};

/// Reads num_attention_heads, num_key_value_heads and head_dim; errors go to `config`.
HeadSizes ReadHeads(ConfigReader& config, int hidden, const HeadDefaults& defaults);

}  // namespace culet
