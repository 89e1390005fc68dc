// A kernel that pairs columns, with a kernel behind it that quantises: where there are few tiles,
// or few rows, tiles of all columns of a scale leave most multiprocessors without work.
#pragma once

#include <memory>
#include <utility>

#include "culet/kernel.h"
#include "kernels/catalog.h"

namespace culet::sm90 {

/// `inner`, which must outlive it and takes Epilogue::kGatedSilu with D in FP32, as a kernel of
/// Epilogue::kGatedSiluQuant. D waits in FP32 in the workspace's partials. `sms`: the device's
/// multiprocessors.
std::unique_ptr<Kernel> Quantised(ArgsKernel& inner, int sms);

/// Adds the kernel, and where it pairs columns its Quantised twin.
inline void Add(std::unique_ptr<ArgsKernel> kernel, int sms, KernelList& kernels) {
  ArgsKernel& added = *kernel;
  kernels.push_back(std::move(kernel));
  if (added.desc().epilogue == Epilogue::kGatedSilu) kernels.push_back(Quantised(added, sms));
}

}  // namespace culet::sm90
