#include <algorithm>
#include <cmath>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const Fp8SwapTimes kFp8SwapAlone = {.launch = 1.707,
                                    .read = 1.591,
                                    .latency = 1.22,
                                    .sm_bytes = 199.2,
                                    .product = 0.02206,
                                    .l2 = 9883,
                                    .norm = 1.256,
                                    .wave = 1.021,
                                    .store_sums = 0.06586,
                                    .exchange = 0.2593,
                                    .exchange_sums = 0.1341,
                                    .exchange_more = 0.5887,
                                    .idle = 0,
                                    .filled = 0};
const Fp8SwapTimes kFp8SwapDependent = {.launch = 0.4871,
                                        .read = 2.803,
                                        .latency = 0.1479,
                                        .sm_bytes = 1e+06,
                                        .product = 0.02427,
                                        .l2 = 5262,
                                        .norm = 1.271,
                                        .wave = 1.139,
                                        .store_sums = 0.04762,
                                        .exchange = 0.5947,
                                        .exchange_sums = 0.0767,
                                        .exchange_more = 0.5742,
                                        .idle = 7.283,
                                        .filled = 0.7407};

namespace {

// (a^q + b^q + c^q + d^q)^(1/q), for any q and range.
double Norm(double a, double b, double c, double d, double q) {
  const double most = std::max({a, b, c, d});
  return most * std::pow(std::pow(a / most, q) + std::pow(b / most, q) + std::pow(c / most, q) +
                             std::pow(d / most, q),
                         1 / q);
}

}  // namespace

double Fp8SwapUs(const Fp8SwapTimes& t, const Chip& chip, const Fp8SwapKernel& kernel,
                 int residency, int splits, const Extents& p) {
  const double clock = 0.9 * chip.clock_mhz;  // a microsecond's
  const int loads = CeilDiv(CeilDiv(p.k, 128), kernel.stage_blocks);
  const int k_blocks = CeilDiv(loads, splits) * kernel.stage_blocks;
  const double ctas = double(CeilDiv(p.n, kernel.rows())) * CeilDiv(p.m, kernel.tokens) * splits;
  const int stages = Fp8SwapStages(kernel, CeilDiv(p.k, 128), splits, residency);
  // Clusters of more than two do not fill every part of the chip: 248 and 240 of 264 places.
  const double slots = chip.sms * residency * (splits > 4 ? 0.9 : splits > 2 ? 0.93 : 1.0);
  const double waves = std::ceil(ctas / slots), per_sm = std::ceil(ctas / chip.sms);
  const double in_flight =
      std::min(ctas, slots) * stages * kernel.stage_blocks * kernel.rows() * 128;
  const double rate = std::min(chip.read_gbps * 1e3 * t.read, in_flight / t.latency);
  const double bytes =
      double(p.n) * p.k + double(p.m) * p.k + double(kernel.output_bytes) * p.m * p.n;
  const double per_sm_blocks = per_sm * k_blocks;
  const double taken =
      per_sm_blocks * (kernel.rows() + std::min(kernel.tokens, p.m)) * 128.0 / (t.sm_bytes * clock);
  const double products = per_sm_blocks * kernel.rows() * kernel.tokens * t.product / clock;
  const double delivered =
      double(p.k) *
      (double(p.m) * CeilDiv(p.n, kernel.rows()) + double(p.n) * CeilDiv(p.m, kernel.tokens)) /
      (t.l2 * clock);
  const double sums = kernel.tokens * kernel.rows() / 512.0;
  double us = t.launch + Norm(bytes / rate, taken, products, delivered, t.norm) +
              (waves - 1) * t.wave + t.store_sums * sums * waves +
              t.idle * std::max(0.0, t.filled - ctas / slots);
  if (splits > 1) us += t.exchange + t.exchange_sums * sums * (1 + t.exchange_more * (splits - 2));
  return us;
}

}  // namespace culet::sm90
