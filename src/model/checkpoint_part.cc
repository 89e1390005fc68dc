// The part of a weight that a rank reads, or one of several that a tensor holds.
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ceil_div.h"
#include "model/checkpoint.h"

namespace culet {
namespace {

// "[64:128]", "[:, 64:128]".
std::string PartName(const WeightRequest& part, bool vector) {
  const std::int64_t rows = vector ? part.cols : part.rows;
  const std::string of_rows =
      part.of > 0 ? fmt::format("{}:{}", part.first, part.first + rows) : std::string(":");
  if (part.of_cols == 0) return fmt::format("{}[{}]", part.name, of_rows);
  return fmt::format("{}[{}, {}:{}]", part.name, of_rows, part.first_col,
                     part.first_col + part.cols);
}

}  // namespace

void Checkpoint::BeginPart(const WeightRequest& request) {
  part_ = request;
  // Elements of a vector are its columns.
  if (request.role == WeightRole::kVector || request.role == WeightRole::kGammaLessOne) {
    part_.first_col = std::exchange(part_.first, 0);
    part_.of_cols = std::exchange(part_.of, 0);
  }
}

void Checkpoint::EndPart() {
  part_ = {};
  pieces_.clear();
}

Weight Checkpoint::GetPart(const WeightRequest& request) {
  BeginPart(request);
  Weight weight = Get(request.name, request.rows, request.cols, request.role);
  EndPart();
  if (weight.present() && (request.of > 0 || request.of_cols > 0)) {
    weight.name = PartName(request, request.role == WeightRole::kVector);
  }
  return weight;
}

bool Checkpoint::IsCopy(const std::byte* data) const {
  for (const Piece& piece : pieces_) {
    if (!piece.bytes.empty() && data == piece.bytes.data()) return true;
  }
  return false;
}

bool Checkpoint::CutDimension(const SafetensorsTensor& tensor, const Dimension& dimension,
                              std::size_t number, std::int64_t& first, std::int64_t& count) {
  const bool rows = dimension.of == Dimension::Of::kRows;
  const std::int64_t of = rows ? part_.of : part_.of_cols;
  const std::int64_t all = tensor.shape[number];
  first = 0;
  count = all;
  if (dimension.of == Dimension::Of::kOne || of == 0) return true;
  const std::int64_t begin = rows ? part_.first : part_.first_col;
  const std::int64_t size = rows ? part_.rows : part_.cols, grain = dimension.grain;
  if (all != CeilDiv(of, grain)) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; the config makes dimension {} of it {}", tensor.name,
                     fmt::join(tensor.shape, ", "), number, CeilDiv(of, grain)));
    return false;
  }
  first = begin / grain;
  count = CeilDiv(begin % grain + size, grain);
  if (begin % grain == 0 || count == 1) return true;
  Fail(
      StatusCode::kUnsupported,
      fmt::format("tensor {} has one for {} {}, and a part of the weight begins at {}; a part must "
                  "begin with such a group, or lie within one",
                  tensor.name, grain, rows ? "rows" : "columns", begin));
  return false;
}

const SafetensorsTensor* Checkpoint::FindPart(const std::string& name,
                                              const std::vector<Dimension>& of) {
  if (part_.of == 0 && part_.of_cols == 0) return Find(name);
  const SafetensorsTensor* whole = Peek(name);
  if (whole == nullptr) return Find(name);  // says that it is missing
  read_.insert(whole);
  const std::size_t dimensions = whole->shape.size();
  // What has one column may lack it, and a vector may have one row.
  const std::size_t skipped = of.size() == 1 && dimensions == 2 && whole->shape[0] == 1 ? 1 : 0;
  std::int64_t first[2] = {0, 0}, count[2] = {1, 1};
  if (dimensions < 1 || dimensions > 2) return whole;  // its shape is refused
  for (std::size_t i = skipped; i < dimensions && i - skipped < of.size(); ++i) {
    if (!CutDimension(*whole, of[i - skipped], i, first[i], count[i])) return nullptr;
  }
  Piece piece;
  piece.tensor = *whole;
  piece.tensor.shape[0] = count[0];
  if (dimensions == 2) piece.tensor.shape[1] = count[1];
  const std::int64_t across = dimensions == 2 ? whole->shape[1] : 1;
  const auto size =
      static_cast<std::size_t>(whole->bytes) / static_cast<std::size_t>(whole->elements());
  const auto pitch = static_cast<std::size_t>(across) * size;
  const std::size_t length = static_cast<std::size_t>(count[1]) * size;
  const std::byte* from = whole->data + static_cast<std::size_t>(first[0]) * pitch +
                          static_cast<std::size_t>(first[1]) * size;
  piece.tensor.bytes = count[0] * static_cast<std::int64_t>(length);
  read_bytes_ += static_cast<std::size_t>(piece.tensor.bytes);
  if (length == pitch) {
    piece.tensor.data = from;
  } else {
    piece.bytes.resize(static_cast<std::size_t>(piece.tensor.bytes));
    for (std::int64_t row = 0; row < count[0]; ++row, from += pitch) {
      std::memcpy(piece.bytes.data() + static_cast<std::size_t>(row) * length, from, length);
    }
    piece.tensor.data = piece.bytes.data();
  }
  pieces_.push_back(std::move(piece));
  return &pieces_.back().tensor;
}

}  // namespace culet
