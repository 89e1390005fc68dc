// JSON texts of untrusted files.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace culet {

/// The document; discarded (is_discarded()) when the text is no JSON or nests lists and objects
/// more than 64 deep: copying and printing a value recurse, so depth would cost the stack.
nlohmann::json ParseJson(std::string_view text);

}  // namespace culet
