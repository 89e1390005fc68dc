// The rows of `culet bench --csv`.
#pragma once

#include <string>

#include "contenders.h"
#include "culet/device.h"
#include "problem_args.h"

namespace culet::cli {

/// The header, and one contender: sizes, launch, times, and the limit with the rates that it is
/// made of. Fields of what was not timed are empty; texts with commas or quotes stand in quotes.
/// Each with its line end.
std::string CsvHeader();
std::string CsvRow(const Problem& problem, const Contender& contender, const HardwareRates& rates,
                   double limit_us);

}  // namespace culet::cli
