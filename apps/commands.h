// The commands. Each Add function declares one and its options.
#pragma once

#include "options.h"

namespace culet::cli {

void AddDevices(const Command& program);
void AddKernels(const Command& program);
void AddExplain(const Command& program);
void AddBench(const Command& program);
void AddTune(const Command& program);
void AddVerify(const Command& program);
void AddCache(const Command& program);
void AddDoctor(const Command& program);
void AddRank(const Command& program);
void AddRun(const Command& program);
void AddCompare(const Command& program);
void AddQuantize(const Command& program);

}  // namespace culet::cli
