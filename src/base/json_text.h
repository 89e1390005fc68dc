// JSON texts of untrusted files. The library's parsing and printing of values stands here, so that
// the compiler makes nlohmann's templates of them once.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace culet {

/// The document; discarded (is_discarded()) when the text is no JSON or nests lists and objects
/// more than 64 deep: copying and printing a value recurse, so depth would cost the stack.
nlohmann::json ParseJson(std::string_view text);

/// On one line. What is no UTF-8 is replaced.
std::string JsonText(const nlohmann::json& value);

}  // namespace culet
