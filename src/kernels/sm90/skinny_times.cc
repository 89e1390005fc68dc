#include <algorithm>
#include <cmath>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const SkinnyTimes kSkinnyAlone = {.launch = 1.217,
                                  .read = 1.361,
                                  .latency = 0.6702,
                                  .sm_bytes = 61.22,
                                  .token = 1.783,
                                  .norm = 1.64,
                                  .wave = 0.9494,
                                  .last = 0.1365,
                                  .split = 0.05674,
                                  .a_mb = 0,
                                  .d_mb = 9.684,
                                  .idle = 0.06561,
                                  .filled = 0.0446};
const SkinnyTimes kSkinnyDependent = {.launch = 0,
                                      .read = 1.832,
                                      .latency = 0.5532,
                                      .sm_bytes = 62.13,
                                      .token = 2.654,
                                      .norm = 2.407,
                                      .wave = 1.444,
                                      .last = 0.1845,
                                      .split = 0,
                                      .a_mb = 0.07012,
                                      .d_mb = 6.033,
                                      .idle = 5.347,
                                      .filled = 0.8047};

double SkinnyUs(const SkinnyTimes& t, const Chip& chip, const SkinnyKernel& kernel, int splits,
                bool pdl, const Extents& p) {
  const double clock = 0.9 * chip.clock_mhz;  // a microsecond's
  const int groups = SkinnyRowGroups(splits), warps = splits * groups;
  const int k_blocks = CeilDiv(CeilDiv(p.k, 128), splits), depth = std::min(kernel.depth, k_blocks);
  const double tiles = CeilDiv(p.n, kernel.rows), ctas = std::ceil(tiles / groups);
  const double slots = chip.sms * std::max(1, SkinnyResidentCtas(kernel, warps, pdl));
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / chip.sms);
  const double in_flight = std::min(ctas, slots) * warps * depth * kernel.rows * 128.0;
  const double rate = std::min(chip.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double stream = double(p.n) * p.k / rate;
  const double taken =
      per_sm * warps * k_blocks * 128.0 * (kernel.rows + t.token * p.m) / (t.sm_bytes * clock);
  const double most = std::max(stream, taken);
  return t.launch +
         most * std::pow(std::pow(stream / most, t.norm) + std::pow(taken / most, t.norm),
                         1 / t.norm) +
         (waves - 1) * t.wave + t.last * depth * kernel.rows / 16 + t.split * splits +
         t.a_mb * 1e-6 * tiles * p.m * p.k + t.d_mb * 1e-6 * kernel.output_bytes * p.m * p.n +
         t.idle * std::max(0.0, t.filled - std::min(1.0, ctas / slots));
}

}  // namespace culet::sm90
