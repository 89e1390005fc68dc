#include "kernels/onednn/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_mutex.h"
#include "base/made_once.h"
#include "base/thread_pool.h"
#include "kernels/cpu/simd_exact.h"
#include "kernels/cpu/simd_store.h"
#include "kernels/onednn/part.h"

namespace culet::onednn {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t RoundUp(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// The library keeps primitives in a table with a lock of its own. Whoever makes one holds this,
/// so that no fork finds the table locked.
ForkMutex& MakingMutex() {
  static constinit std::atomic<ForkMutex*> mutex = nullptr;
  return MadeOnce(mutex, std::make_unique<ForkMutex>);
}

// StoreRowOfSums may read a vector beyond the last sum.
std::size_t SumsBytes(const Grid& grid) noexcept {
  return RoundUp(static_cast<std::size_t>(grid.rows) * static_cast<std::size_t>(grid.cols) *
                     sizeof(float),
                 kLine) +
         kLine;
}

// Whether the library can write D itself.
bool WritesType(DataType type, DataType type_d) noexcept {
  return type_d == DataType::kFloat32 ||
         (type_d == DataType::kBfloat16 && type == DataType::kBfloat16);
}

/// A grid with the primitive of each of its shapes.
struct Cut {
  Grid grid{};
  std::array<std::shared_ptr<const Part>, 4> parts;

  bool exists() const noexcept { return parts[0] != nullptr; }
};

class Matmul final : public PreparedKernel {
 public:
  Matmul(const Library& library, const GemmArgs& args, std::size_t thread_bytes)
      : library_(library), args_(args), thread_bytes_(thread_bytes) {}

  Status Make(const GemmDesc& desc, int threads) {
    const std::lock_guard lock(MakingMutex());
    const OneThread one(library_);
    const Ways ways = WaysFor(desc, threads);
    const int variant = std::clamp(args_.operation.variant, 0, ways.count - 1);
    const Way& way = ways.variants[static_cast<std::size_t>(variant)];
    sums_.grid = way.by_rows ? GridByColumns(desc, threads) : way.grid;
    CULET_RETURN_IF_ERROR(MakeCut(DataType::kFloat32, SumsBytes(sums_.grid), sums_));
    if (!way.by_rows || args_.operation.bias.data != nullptr ||
        args_.Cdesc.type != DataType::kNull || !WritesType(args_.Adesc.type, args_.Ddesc.type) ||
        args_.Ddesc.ld != desc.n) {
      return {};
    }
    direct_.grid = way.grid;
    return MakeCut(args_.Ddesc.type, 0, direct_);
  }

  int Launch(float alpha, const void* A, const void*, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t) const noexcept override {
    try {
      GemmArgs args = args_;
      args.alpha = alpha;
      args.A = A;
      args.beta = beta;
      args.C = C;
      args.D = D;
      return Run(args, workspace);
    } catch (...) {  // a stream or a memory object could not be allocated
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
  }

 private:
  // `before`: bytes of a thread's workspace in front of the scratchpad.
  Status MakeCut(DataType type_d, std::size_t before, Cut& cut) {
    const Operands operands{args_.Adesc.cols,  args_.Adesc.type, args_.Adesc.order,
                            args_.Bdesc.order, args_.Adesc.ld,   args_.Bdesc.ld};
    const auto shapes = ShapesOf(cut.grid);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      const std::size_t same = FirstLike(shapes, i);
      if (same < i) {
        cut.parts[i] = cut.parts[same];
        continue;
      }
      auto part = std::make_shared<Part>(library_.api);
      int error = part->Describe(library_, operands, shape.rows, shape.cols, type_d);
      if (error == kSuccess) {
        error = part->Create(library_);
      }
      if (error != kSuccess) {
        return Status(
            error == kOutOfMemory ? StatusCode::kResourceExhausted : StatusCode::kUnsupported,
            fmt::format("oneDNN {} refuses a product of {} x {} x {} (dnnl_status_t {})",
                        library_.version, shape.rows, shape.cols, operands.k, error));
      }
      if (before + part->scratchpad_bytes() > thread_bytes_) {
        return Status(StatusCode::kUnsupported,
                      fmt::format("oneDNN {} wants {} bytes of scratchpad for these pitches, more "
                                  "than for tightly packed operands",
                                  library_.version, part->scratchpad_bytes()));
      }
      cut.parts[i] = std::move(part);
    }
    return {};
  }

  int Run(const GemmArgs& args, Workspace& workspace) const {
    const std::size_t fitting = workspace.partials_size / thread_bytes_;
    if (workspace.partials == nullptr || fitting == 0) {
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
    // A workspace made for fewer threads than there are now limits them.
    int threads = static_cast<int>(std::min<std::size_t>(fitting, 1 << 16));
    const int budget = args.operation.sm_budget;
    if (budget > 0) threads = std::min(threads, budget);
    const bool direct = args.alpha == 1.0f && direct_.exists();
    const Cut& cut = direct ? direct_ : sums_;
    std::atomic<int> error = kSuccess;
    HostPool().Run(
        cut.grid.parts(),
        [&](int part, int thread) {
          if (error.load(std::memory_order_relaxed) != kSuccess) return;
          auto* const own = static_cast<std::byte*>(workspace.partials) +
                            static_cast<std::size_t>(thread) * thread_bytes_;
          const int e = RunPart(args, cut, part, own);
          if (e != kSuccess) error.store(e, std::memory_order_relaxed);
        },
        threads);
    switch (error.load()) {
      case kSuccess:
        return 0;
      case kOutOfMemory:
        return static_cast<int>(StatusCode::kResourceExhausted);
      default:
        return static_cast<int>(StatusCode::kInternal);
    }
  }

  int RunPart(const GemmArgs& args, const Cut& cut, int index, std::byte* own) const {
    const Grid& grid = cut.grid;
    // Neighbours in time share columns of B.
    const int row_part = index % grid.row_parts(), col_part = index / grid.row_parts();
    const std::int64_t row = std::int64_t{row_part} * grid.rows;
    const std::int64_t col = std::int64_t{col_part} * grid.cols;
    const std::size_t shape =
        (row_part + 1 == grid.row_parts() ? 2u : 0u) + (col_part + 1 == grid.col_parts() ? 1u : 0u);
    const Part& part = *cut.parts[shape];
    const void* A = At(args.A, args.Adesc, row, 0);
    const void* B = At(args.B, args.Bdesc, 0, col);

    const OneThread one(library_);
    OwnedStream stream(library_.api);
    if (const int e = library_.api.stream_create(stream.out(), library_.engine, kDefaultStream)) {
      return e;
    }
    const Shape size = ShapesOf(grid)[shape];
    ExactElements exact(args);
    if (&cut == &direct_) {
      void* D = const_cast<void*>(At(args.D, args.Ddesc, row, col));
      if (const int e = part.Execute(library_, stream.get(), A, B, D, own)) return e;
      for (int r = 0; r < size.rows; ++r) {
        RestoreRow(args, row + r, col, static_cast<std::size_t>(size.cols), exact);
      }
      return kSuccess;
    }
    auto* const sums = reinterpret_cast<float*>(own);
    if (const int e = part.Execute(library_, stream.get(), A, B, sums, own + SumsBytes(grid))) {
      return e;
    }
    for (int r = 0; r < size.rows; ++r) {
      StoreRowOfSums(args, row + r, col, static_cast<std::size_t>(size.cols),
                     sums + std::int64_t{r} * size.cols, exact);
    }
    return kSuccess;
  }

  static const void* At(const void* data, const MatrixLayout& layout, std::int64_t row,
                        std::int64_t col) {
    const std::int64_t index =
        layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld;
    return static_cast<const std::byte*>(data) +
           index * static_cast<std::int64_t>(SizeOf(layout.type));
  }

  const Library& library_;
  const GemmArgs args_;
  const std::size_t thread_bytes_;
  Cut sums_;    // by columns, into FP32 sums
  Cut direct_;  // by rows, into D, where that is all there is to do
};

}  // namespace

std::size_t ThreadBytes(const Library& library, const GemmDesc& desc, int threads) noexcept {
  try {
    const Operands operands{desc.k,
                            desc.a.type,
                            desc.a.order,
                            desc.b.order,
                            desc.a.order == Order::kRowMajor ? desc.k : desc.m,
                            desc.b.order == Order::kRowMajor ? desc.n : desc.k};
    const std::lock_guard lock(MakingMutex());
    const OneThread one(library);
    std::size_t bytes = 0;
    // The bytes that a part of the grid's largest shape needs after `before` bytes.
    const auto add = [&](const Grid& grid, DataType type_d, std::size_t before) {
      const auto shapes = ShapesOf(grid);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (FirstLike(shapes, i) < i) continue;
        Part part(library.api);
        if (part.Describe(library, operands, shapes[i].rows, shapes[i].cols, type_d) != kSuccess) {
          return false;
        }
        bytes = std::max(bytes, before + part.scratchpad_bytes());
      }
      return true;
    };
    // Parts by rows may need sums too.
    const Grid usual = GridByColumns(desc, threads);
    if (!add(usual, DataType::kFloat32, SumsBytes(usual))) return 0;
    const Ways ways = WaysFor(desc, threads);
    for (int i = 0; i < ways.count; ++i) {
      const auto& [grid, by_rows] = ways.variants[static_cast<std::size_t>(i)];
      if (by_rows && !WritesType(desc.a.type, desc.d.type)) continue;
      const bool taken =
          by_rows ? add(grid, desc.d.type, 0) : add(grid, DataType::kFloat32, SumsBytes(grid));
      if (!taken) return 0;
    }
    return RoundUp(bytes, kLine);
  } catch (...) {
    return 0;
  }
}

Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const Library& library, const GemmArgs& args,
                                                      const GemmDesc& desc, int threads,
                                                      std::size_t thread_bytes) {
  auto matmul = std::make_unique<Matmul>(library, args, thread_bytes);
  CULET_RETURN_IF_ERROR(matmul->Make(desc, threads));
  return std::unique_ptr<PreparedKernel>(std::move(matmul));
}

}  // namespace culet::onednn
