// What a Diagnosis means: what is broken, what will be slow, and what to do about it.
#pragma once

#include "culet/doctor.h"

namespace culet {

/// The findings of a Diagnosis whose other fields are filled in, worst first.
std::vector<Finding> FindingsOf(const Diagnosis& diagnosis);

}  // namespace culet
