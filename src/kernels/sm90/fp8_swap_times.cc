#include <algorithm>
#include <cmath>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const Fp8SwapTimes kFp8SwapAlone = {.launch = 1.606,
                                    .read = 3.213,
                                    .latency = 0.6916,
                                    .sm_bytes = 157.6,
                                    .product = 0.01786,
                                    .l2 = 7421,
                                    .norm = 1.225,
                                    .wave = 1.01,
                                    .store_sums = 0.06905,
                                    .exchange = 0.8597,
                                    .exchange_sums = 0.0567,
                                    .exchange_more = 0.3947,
                                    .idle = 0,
                                    .filled = 0};
const Fp8SwapTimes kFp8SwapDependent = {.launch = 0.6319,
                                        .read = 5.6,
                                        .latency = 0.05648,
                                        .sm_bytes = 1e+06,
                                        .product = 0.02222,
                                        .l2 = 5598,
                                        .norm = 1.214,
                                        .wave = 1.135,
                                        .store_sums = 0.06319,
                                        .exchange = 0.7542,
                                        .exchange_sums = 0.05168,
                                        .exchange_more = 0.6275,
                                        .idle = 6.229,
                                        .filled = 0.7445};

namespace {

// (a^q + b^q + c^q + d^q)^(1/q), for any q and range.
double Norm(double a, double b, double c, double d, double q) {
  const double most = std::max({a, b, c, d});
  return most * std::pow(std::pow(a / most, q) + std::pow(b / most, q) + std::pow(c / most, q) +
                             std::pow(d / most, q),
                         1 / q);
}

// The share of a chip's places that clusters of so many CTAs fill, since a cluster lies in one GPC.
// On five H200s all launches below it ran as one wave, all that were 3 % above it as two.
constexpr double kFilled[kSwapMaxSplits + 1] = {1, 1, 1, 0.885, 0.94, 0.85, 0.79, 0.86, 0.94};

}  // namespace

double Fp8SwapUs(const Fp8SwapTimes& t, const Chip& chip, const SwapKernel& kernel, int residency,
                 int splits, const Extents& elements) {
  // Fitted to E4M3; a k-block is 128 bytes in every format.
  Extents p = elements;
  p.k = elements.k * kernel.format->element_bytes;
  const double clock = 0.9 * chip.clock_mhz;  // a microsecond's
  const int loads = CeilDiv(CeilDiv(p.k, 128), kernel.stage_blocks());
  const int k_blocks = CeilDiv(loads, splits) * kernel.stage_blocks();
  const double ctas = double(CeilDiv(p.n, kernel.rows())) * CeilDiv(p.m, kernel.tokens()) * splits;
  const int stages = SwapStages(kernel, CeilDiv(p.k, 128), splits, residency);
  const double sms = chip.sms * kFilled[std::min(splits, kSwapMaxSplits)];
  const double slots = sms * residency;
  const double waves = std::ceil(ctas / slots);
  const double per_sm = (waves - 1) * residency + std::ceil((ctas - (waves - 1) * slots) / sms);
  const double in_flight =
      std::min(ctas, slots) * stages * kernel.stage_blocks() * kernel.rows() * 128;
  const double rate = std::min(chip.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double bytes =
      double(p.n) * p.k + double(p.m) * p.k + double(kernel.output_bytes()) * p.m * p.n;
  const double per_sm_blocks = per_sm * k_blocks;
  const double taken = per_sm_blocks * (kernel.rows() + std::min(kernel.tokens(), p.m)) * 128.0 /
                       (t.sm_bytes * clock);
  const double products = per_sm_blocks * kernel.rows() * kernel.tokens() * t.product / clock;
  const double delivered =
      double(p.k) *
      (double(p.m) * CeilDiv(p.n, kernel.rows()) + double(p.n) * CeilDiv(p.m, kernel.tokens())) /
      (t.l2 * clock);
  const double sums = kernel.tokens() * kernel.rows() / 512.0;
  double us = t.launch + Norm(bytes / rate, taken, products, delivered, t.norm) +
              (waves - 1) * t.wave + t.store_sums * sums * waves +
              t.idle * std::max(0.0, t.filled - ctas / slots);
  if (splits > 1) us += t.exchange + t.exchange_sums * sums * (1 + t.exchange_more * (splits - 2));
  return us;
}

}  // namespace culet::sm90
