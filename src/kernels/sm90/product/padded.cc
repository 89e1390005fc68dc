#include "kernels/sm90/product/padded.h"

namespace culet::sm90 {
namespace {

constexpr std::size_t kAligned = 256;

// Elements from a row of a copy to the next; `layout` has whole bytes an element.
std::int64_t PitchOf(DataType type, int k) {
  const auto bytes = static_cast<std::int64_t>(SizeOf(type));
  return PaddedBytes(k * bytes) / bytes;
}

std::size_t BytesOfCopy(DataType type, int rows, int k) {
  const std::size_t bytes =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(PitchOf(type, k)) * SizeOf(type);
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

// Whether rows of a plan's operand begin on 16 bytes; where there is one row, its address decides.
bool LiesOn16(const void* data, const MatrixLayout& layout, int rows) {
  const auto pitch = rows > 1 ? layout.ld * static_cast<std::int64_t>(SizeOf(layout.type)) : 0;
  return (reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uint64_t>(pitch)) % 16 == 0;
}

RowsToPad RowsOf(const void* data, const MatrixLayout& layout, int rows, int k) {
  const auto bytes = static_cast<std::int64_t>(SizeOf(layout.type));
  return {.from = data,
          .from_pitch = layout.ld * bytes,
          .to_pitch = PaddedBytes(k * bytes),
          .rows = rows,
          .row_bytes = static_cast<int>(k * bytes)};
}

}  // namespace

Padding::Padding(const GemmArgs& args)
    : a(!LiesOn16(args.A, args.Adesc, args.Adesc.rows)),
      b(!LiesOn16(args.B, args.Bdesc, args.Bdesc.cols)) {}

GemmDesc PaddedProblem(GemmDesc p) noexcept {
  const Padding padding(p);
  if (padding.a) p.a.align = 16, p.a.pitch = Pitch::kShort;
  if (padding.b) p.b.align = 16, p.b.pitch = Pitch::kShort;
  // The kernel before it is now the one that copies, which does not write B unless it makes B's
  // copy.
  p.pdl = !padding.b;
  return p;
}

GemmArgs PaddedArgs(GemmArgs args, const Padding& padding, const void* copy_of_b) {
  const int k = args.Adesc.cols;
  if (padding.a) args.A = nullptr, args.Adesc.ld = PitchOf(args.Adesc.type, k);
  if (padding.b) args.B = copy_of_b, args.Bdesc.ld = PitchOf(args.Bdesc.type, k);
  args.operation.pdl = !padding.b;
  args.operation.pdl_chain = false;
  return args;
}

std::size_t OffsetOfPaddedB(const MatrixLayout& a, const Padding& padding) noexcept {
  return padding.a ? BytesOfCopy(a.type, a.rows, a.cols) : 0;
}

std::size_t PaddedWorkspace(const GemmDesc& p) noexcept {
  const Padding padding(p);
  return (padding.a ? BytesOfCopy(p.a.type, p.m, p.k) : 0) +
         (padding.b ? BytesOfCopy(p.b.type, p.n, p.k) : 0);
}

PadRowsParams PadRowsOf(const GemmArgs& args, const Padding& padding) {
  PadRowsParams params;
  int i = 0;
  if (padding.a) params.matrix[i++] = RowsOf(args.A, args.Adesc, args.Adesc.rows, args.Adesc.cols);
  if (padding.b) params.matrix[i] = RowsOf(args.B, args.Bdesc, args.Bdesc.cols, args.Adesc.cols);
  return params;
}

double PadRowsUs(const GemmDesc& p) noexcept {
  // Estimates, of which no fit was made: a launch in front, most of which the product's own start
  // covers where only A is copied, and bytes that are read from memory and written to the
  // second-level cache.
  constexpr double kBesideUs = 1.0, kInFrontUs = 2.5, kGbps = 5000;
  const Padding padding(p);
  const double k_a = static_cast<double>(p.k) * static_cast<double>(SizeOf(p.a.type)),
               k_b = static_cast<double>(p.k) * static_cast<double>(SizeOf(p.b.type));
  const double bytes = (padding.a ? k_a * p.m : 0) + (padding.b ? k_b * p.n : 0);
  return (padding.b ? kInFrontUs : kBesideUs) + 2 * bytes / (kGbps * 1e3);
}

}  // namespace culet::sm90
