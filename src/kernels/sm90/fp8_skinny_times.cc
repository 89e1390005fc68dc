#include <algorithm>
#include <cmath>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const Fp8SkinnyTimes kFp8SkinnyAlone = {.launch = 0.9273,
                                        .read = 1.233,
                                        .latency = 0.7427,
                                        .sm_bytes = 55.24,
                                        .token = 1.876,
                                        .norm = 1.782,
                                        .wave = 1.199,
                                        .last = 0.1514,
                                        .split = 0.05009,
                                        .a_mb = 0,
                                        .d_mb = 6.562,
                                        .idle = 0.05244,
                                        .filled = 0.04786};
const Fp8SkinnyTimes kFp8SkinnyDependent = {.launch = 0,
                                            .read = 1.417,
                                            .latency = 0.459,
                                            .sm_bytes = 55.18,
                                            .token = 3.828,
                                            .norm = 2.591,
                                            .wave = 1.753,
                                            .last = 0.2226,
                                            .split = 0,
                                            .a_mb = 0.004753,
                                            .d_mb = 1.941,
                                            .idle = 3.933,
                                            .filled = 0.7965};

double Fp8SkinnyUs(const Fp8SkinnyTimes& t, const Chip& chip, const Fp8SkinnyKernel& kernel,
                   int splits, bool pdl, const Extents& p) {
  const double clock = 0.9 * chip.clock_mhz;  // a microsecond's
  const int groups = Fp8SkinnyRowGroups(splits), warps = splits * groups;
  const int k_blocks = CeilDiv(CeilDiv(p.k, 128), splits), depth = std::min(kernel.depth, k_blocks);
  const double tiles = CeilDiv(p.n, kernel.rows), ctas = std::ceil(tiles / groups);
  const double slots = chip.sms * std::max(1, Fp8SkinnyResidentCtas(kernel, warps, pdl));
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
