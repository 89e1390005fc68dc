// Which rows of a whole table a rank's part has.
#pragma once

#include <cstdint>

#include "culet/tensor.h"

namespace culet {

struct TableRows {
  std::int64_t first = 0;  ///< the row of the whole table that is the part's first
  std::int64_t all = 0;    ///< rows of the whole table
};

/// Why a dispatch by itself refuses what ranks exchange.
inline constexpr const char* kNeedsRanks =
    "it needs the other ranks, through the dispatch that MakeRankDispatch makes of this one";

/// `parts` absent: the table is whole.
inline TableRows RowsOf(const Weight& table, const RankParts& parts) {
  return parts.present() ? TableRows{parts.first(), parts.all()} : TableRows{0, table.rows};
}

}  // namespace culet
