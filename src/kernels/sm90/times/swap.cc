#include <algorithm>
#include <cmath>

#include "kernels/sm90/times/times.h"

namespace culet::sm90 {

const SwapTimes kFp8Swap = {.launch = 2.2,
                            .read = 1.208,
                            .latency = 0.9703,
                            .sm_bytes = 54.74,
                            .product = 1.63,
                            .l2 = 6626,
                            .beyond = 0,
                            .norm = 2.703,
                            .wave = 1.638,
                            .store_sums = 0.04773,
                            .exchange = 0.6502,
                            .exchange_sums = 0.01684,
                            .dependent = 1.085,
                            .beside = 2.014,
                            .late = 0.1035};

const SwapTimes kDirectSwap = {.launch = 2.566,
                               .read = 1.196,
                               .latency = 1.041,
                               .sm_bytes = 88.79,
                               .product = 1.3,
                               .l2 = 7048,
                               .beyond = 0,
                               .norm = 2.159,
                               .wave = 1.179,
                               .store_sums = 0.03386,
                               .exchange = 0.3406,
                               .exchange_sums = 0.03758,
                               .dependent = 1.986,
                               .beside = 1.925,
                               .late = 0};

namespace {

// (a^q + b^q + c^q + d^q)^(1/q), for any q and range.
double Norm(double a, double b, double c, double d, double q) {
  const double most = std::max({a, b, c, d});
  return most * std::pow(std::pow(a / most, q) + std::pow(b / most, q) + std::pow(c / most, q) +
                             std::pow(d / most, q),
                         1 / q);
}

}  // namespace

double SwapUs(const SwapTimes& t, const Chip& chip, const SwapKernel& kernel, int residency,
              int splits, bool pdl, const Extents& elements) {
  // Fitted to E4M3; a k-block is 128 bytes in every format.
  Extents p = elements;
  p.k = elements.k * kernel.format->element_bytes;
  const double clock = chip.clock_mhz;  // clocks in a microsecond
  const int rows = kernel.rows(), tokens = kernel.tokens();
  const int loads = CeilDiv(CeilDiv(p.k, 128), kernel.stage_blocks());
  const int k_blocks = CeilDiv(loads, splits) * kernel.stage_blocks();
  const int stages = SwapStages(kernel, CeilDiv(p.k, 128), splits, residency);
  const double row_tiles = CeilDiv(p.n, rows), token_tiles = CeilDiv(p.m, tokens);
  const double ctas = row_tiles * token_tiles * splits;
  // A short ring leaves room for more CTAs than the kernel was made for.
  const int resident = SwapResidentCtas(kernel, stages, splits);
  const double sms = chip.sms * FilledShare(splits * kernel.sharers());
  const double places = sms * resident, waves = std::ceil(ctas / places);
  const double last = ctas - (waves - 1) * places;

  // A CTA's share of the bytes that all CTAs load.
  const double bytes =
      double(p.n) * p.k + double(p.m) * p.k + double(kernel.output_bytes()) * p.m * p.n;
  const double read_us = bytes / (t.read * 1e3 * chip.read_gbps) / ctas;
  const double beyond = token_tiles * tokens - p.m;
  const double l2_us =
      p.k * ((p.m + t.beyond * beyond) * row_tiles + p.n * token_tiles) / (t.l2 * clock) / ctas;
  // The time of its multiprocessor, and its own.
  const double taken = (rows + tokens) * 128.0 / t.sm_bytes;
  const double products = rows / 64.0 * tokens * 2 * t.product;
  const double sm_us = k_blocks * std::max(taken, products) / clock;
  const double ring = double(stages) * kernel.stage_blocks();
  const double cta_us = bytes / ctas / (ring * rows * 128) * t.latency;
  const auto wave_us = [&](double ctas_of_wave, double ctas_of_sm) {
    return Norm(cta_us, sm_us * ctas_of_sm, l2_us * ctas_of_wave, read_us * ctas_of_wave, t.norm);
  };
  const double sums = tokens * rows / 512.0;
  double us = t.launch + (waves - 1) * (wave_us(places, resident) + t.wave / resident) +
              wave_us(last, std::ceil(last / sms)) + t.store_sums * sums * waves;
  if (splits > 1) us += t.exchange + t.exchange_sums * sums * (splits - 1);
  if (kernel.sharers() > 1) us += t.exchange;  // as many barriers
  // At the power limit operations and bytes count, as in the large-M family.
  const BlockTimes& power = kernel.format->sums == Sums::kDirect ? kDirectBlock : kFp8Block;
  const double joules = row_tiles * token_tiles * CeilDiv(p.k, 128) *
                        (double(rows) * tokens * 256 * power.joule_operation +
                         (rows + tokens) * 128.0 * power.joule_byte) *
                        1e-6;
  us = std::max(us, t.launch + joules / chip.power_watts);
  if (pdl) {
    // With few tokens the next kernel starts as early as it may (kLateTrigger).
    us -= t.dependent;
    if (tokens >= 64)
      us += waves > 1 ? t.late : 0;
    else if (ctas < 0.7 * places)
      us += t.beside * (1 - std::min(1.0, ring / k_blocks));
  }
  return us;
}

}  // namespace culet::sm90
