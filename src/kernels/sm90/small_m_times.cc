#include <algorithm>
#include <cmath>

#include "kernels/sm90/times.h"

namespace culet::sm90 {

const SmallMTimes kSmallMAlone = {.launch = 1.985,
                                  .read = 1.67,
                                  .latency = 1.168,
                                  .sm_bytes = 176.7,
                                  .product = 0.02031,
                                  .l2 = 9465,
                                  .norm = 1.351,
                                  .wave = 1.155,
                                  .store_sums = 0.06799,
                                  .exchange = 0.2489,
                                  .exchange_sums = 0.1224,
                                  .exchange_more = 0.6481,
                                  .idle = 0,
                                  .filled = 0};
const SmallMTimes kSmallMDependent = {.launch = 0.2076,
                                      .read = 3.388,
                                      .latency = 0.1239,
                                      .sm_bytes = 204.7,
                                      .product = 0.03298,
                                      .l2 = 4710,
                                      .norm = 1.78,
                                      .wave = 1.149,
                                      .store_sums = 0.04088,
                                      .exchange = 0.6657,
                                      .exchange_sums = 0.09682,
                                      .exchange_more = 0.518,
                                      .idle = 7.628,
                                      .filled = 0.7419};

namespace {

// (a^q + b^q + c^q + d^q)^(1/q), for any q and range.
double Norm(double a, double b, double c, double d, double q) {
  const double most = std::max({a, b, c, d});
  return most * std::pow(std::pow(a / most, q) + std::pow(b / most, q) + std::pow(c / most, q) +
                             std::pow(d / most, q),
                         1 / q);
}

}  // namespace

double SmallMUs(const SmallMTimes& t, const Chip& chip, const SmallMKernel& kernel, int residency,
                int splits, const Extents& p) {
  const double clock = 0.9 * chip.clock_mhz;  // a microsecond's
  const int loads = CeilDiv(CeilDiv(p.k, 128), kernel.stage_blocks);
  const int k_blocks = CeilDiv(loads, splits) * kernel.stage_blocks;
  const double ctas = double(CeilDiv(p.n, kernel.rows())) * CeilDiv(p.m, kernel.tokens) * splits;
  const int stages = SmallMStages(kernel, CeilDiv(p.k, 128), splits, residency);
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
