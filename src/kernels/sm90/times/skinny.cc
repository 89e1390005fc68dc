#include <algorithm>
#include <cmath>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/times/times.h"

namespace culet::sm90 {

const SkinnyTimes kFp8SkinnyAlone = {.launch = 1.827,
                                     .read = 1.014,
                                     .latency = 0.8423,
                                     .sm_bytes = 61.02,
                                     .token = 1.706,
                                     .norm = 2.372,
                                     .wave = 0.8721,
                                     .last = 0.1281,
                                     .split = 0.03936,
                                     .a_mb = 0,
                                     .d_mb = 0.7681,
                                     .idle = 0.05244,
                                     .filled = 0.04786};
const SkinnyTimes kFp8SkinnyDependent = {.launch = 0,
                                         .read = 1.156,
                                         .latency = 0.5705,
                                         .sm_bytes = 134.2,
                                         .token = 0.9057,
                                         .norm = 1.341,
                                         .wave = 1.049,
                                         .last = 0.1547,
                                         .split = 0,
                                         .a_mb = 0.1478,
                                         .d_mb = 0.004084,
                                         .idle = 1.422,
                                         .filled = 1.43};
const SkinnyTimes kDirectSkinnyAlone = {.launch = 1.276,
                                        .read = 1.067,
                                        .latency = 0.957,
                                        .sm_bytes = 59.71,
                                        .token = 0.5892,
                                        .norm = 1.838,
                                        .wave = 0.6887,
                                        .last = 0.03966,
                                        .split = 0.08748,
                                        .a_mb = 0,
                                        .d_mb = 3.95,
                                        .idle = 0.05244,
                                        .filled = 0.04786};
const SkinnyTimes kDirectSkinnyDependent = {.launch = 0.002642,
                                            .read = 1.138,
                                            .latency = 0.6859,
                                            .sm_bytes = 116.2,
                                            .token = 0.07755,
                                            .norm = 1.296,
                                            .wave = 0.8279,
                                            .last = 0,
                                            .split = 0.000749,
                                            .a_mb = 0.1604,
                                            .d_mb = 8.455,
                                            .idle = 1.202,
                                            .filled = 1.309,
                                            .held = 1e5,
                                            .held_gain = 0.3,
                                            .held_smem = 1.0,
                                            .held_warp = 0.1,
                                            .held_late = 2.0};

double SkinnyUs(const SkinnyTimes& t, const Chip& chip, const SkinnyKernel& kernel, int splits,
                bool pdl, const Extents& elements) {
  // Fitted to E4M3; a k-block is 128 bytes in every format.
  Extents p = elements;
  p.k = elements.k * kernel.format->element_bytes;
  const double clock = 0.9 * chip.clock_mhz;  // clocks in a microsecond
  const int groups = SkinnyRowGroups(splits), warps = splits * groups;
  const int k_blocks = CeilDiv(CeilDiv(p.k, 128), splits),
            depth = std::min(kernel.depth(), k_blocks);
  const double tiles = CeilDiv(p.n, kernel.rows()), ctas = std::ceil(tiles / groups);
  const double slots = chip.sms * std::max(1, SkinnyResidentCtas(kernel, warps, p.m, pdl));
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / chip.sms);
  const double in_flight = std::min(ctas, slots) * warps * depth * kernel.rows() * 128.0;
  const double rate = std::min(chip.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double stream = double(p.n) * p.k / rate;
  const double taken =
      per_sm * warps * k_blocks * 128.0 * (kernel.rows() + t.token * p.m) / (t.sm_bytes * clock);
  const double most = std::max(stream, taken);
  const double us =
      t.launch +
      most *
          std::pow(std::pow(stream / most, t.norm) + std::pow(taken / most, t.norm), 1 / t.norm) +
      (waves - 1) * t.wave + t.last * depth * kernel.rows() / 16 + t.split * splits +
      t.a_mb * 1e-6 * tiles * p.m * p.k + t.d_mb * 1e-6 * kernel.output_bytes() * p.m * p.n;
  if (double(p.n) * p.k > t.held * chip.sms)
    return us + t.idle * std::max(0.0, t.filled - std::min(1.0, ctas / slots));
  const double resident = std::min(per_sm, slots / chip.sms);
  return us - t.held_gain +
         t.held_smem * resident * kernel.SmemBytes(warps, p.m, false) / kSmemPerSm +
         t.held_warp * warps + t.held_late * (1 - double(depth) / k_blocks);
}

double SkinnyNormUs(int ctas, const Extents& p, bool adds) {
  // From steps of two models with one row (docs/hopper-lessons.md). More rows were not timed; each
  // is taken to cost as much.
  constexpr double kWay = 0.6, kL2 = 5e6;  // us of latency, bytes a us
  return p.m * kWay + 4.0 * ctas * p.m * p.k * (adds ? 2 : 1) / kL2;
}

}  // namespace culet::sm90
