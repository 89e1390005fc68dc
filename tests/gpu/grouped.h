// Products by groups whose rows only the device knows.
#pragma once

namespace culet {

/// Every grouped kernel on groups of 0 to 300 rows with gaps between them, on integers: what belongs to
/// a group must be right to the bit, and nothing else may be written. Prints what is wrong.
bool CheckGrouped();
/// The same of the kernels that gather rows, with biases, factors and gates.
bool CheckGroupedSwaps();

}  // namespace culet
