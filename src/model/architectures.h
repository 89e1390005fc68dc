// Architectures of which the products are known, but that no graph runs yet: from the keys of their
// config.json to products.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "culet/model.h"
#include "model/config_reader.h"

namespace culet {

/// One of them. `products` reads what it needs; errors stay in the reader.
struct Architecture {
  const char* name;        ///< as in the config's "architectures"
  const char* model_type;  ///< as in the config's "model_type"
  std::vector<ModelProduct> (*products)(ConfigReader& config);
};

/// All of them, in alphabetical order.
std::span<const Architecture> Architectures();

}  // namespace culet
