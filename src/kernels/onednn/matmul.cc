#include "kernels/onednn/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "base/fork_mutex.h"
#include "base/thread_pool.h"
#include "kernels/cpu/simd_store.h"

namespace culet::onednn {
namespace {

constexpr std::size_t kLine = 64;

constexpr std::size_t RoundUp(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// The library keeps primitives in a table with a lock of its own. Whoever makes one holds this,
/// so that no fork finds the table locked.
ForkMutex& MakingMutex() {
  static auto* const mutex = new ForkMutex;
  return *mutex;
}

/// An object of the library, destroyed by the function that Api names.
template <class Object, int (*Api::*kDestroy)(Object)>
class Owned {
 public:
  explicit Owned(const Api& api) noexcept : api_(&api) {}
  Owned(Owned&& other) noexcept
      : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  ~Owned() {
    if (object_ != nullptr) static_cast<void>((api_->*kDestroy)(object_));
  }

  Object get() const noexcept { return object_; }
  Object* out() noexcept { return &object_; }

 private:
  const Api* api_;
  Object object_ = nullptr;
};

using OwnedMemoryDesc = Owned<MemoryDesc, &Api::memory_desc_destroy>;
using OwnedAttributes = Owned<Attributes, &Api::primitive_attr_destroy>;
using OwnedPrimitiveDesc = Owned<PrimitiveDesc, &Api::primitive_desc_destroy>;
using OwnedPrimitive = Owned<Primitive, &Api::primitive_destroy>;
using OwnedMemory = Owned<Memory, &Api::memory_destroy>;
using OwnedStream = Owned<Stream, &Api::stream_destroy>;

int TypeCode(DataType type) noexcept { return type == DataType::kBfloat16 ? kBfloat16 : kFloat32; }

int MakeMatrix(const Api& api, int rows, int cols, Order order, std::int64_t ld, int type,
               OwnedMemoryDesc& desc) {
  const std::int64_t sizes[] = {rows, cols};
  // A pitch means nothing where there is one line; the library wants it to be no overlap.
  const std::int64_t strides[] = {order == Order::kRowMajor ? ld : 1,
                                  order == Order::kRowMajor ? 1 : ld};
  return api.memory_desc_create_with_strides(desc.out(), 2, sizes, type, strides);
}

/// What distinguishes the primitives of a problem.
struct Operands {
  int k;
  DataType type;  ///< of A and B
  Order order_a, order_b;
  std::int64_t lda, ldb;
};

/// One primitive with the descriptions of its operands.
struct Part {
  explicit Part(const Api& api) : a(api), b(api), d(api), pd(api), primitive(api) {}

  OwnedMemoryDesc a, b, d;
  OwnedPrimitiveDesc pd;
  OwnedPrimitive primitive;
  MemoryDesc scratchpad = nullptr;  ///< belongs to pd
  std::size_t scratchpad_bytes = 0;

  /// Describes the product of rows x k and k x cols. Returns a dnnl_status_t.
  int Describe(const Library& library, const Operands& operands, int rows, int cols,
               DataType type_d, std::int64_t ldd) {
    const Api& api = library.api;
    OwnedAttributes attributes(api);
    const int type = TypeCode(operands.type);
    if (const int e = MakeMatrix(api, rows, operands.k, operands.order_a, operands.lda, type, a)) {
      return e;
    }
    if (const int e = MakeMatrix(api, operands.k, cols, operands.order_b, operands.ldb, type, b)) {
      return e;
    }
    if (const int e = MakeMatrix(api, rows, cols, Order::kRowMajor, ldd, TypeCode(type_d), d)) {
      return e;
    }
    if (const int e = api.primitive_attr_create(attributes.out())) return e;
    if (const int e = api.primitive_attr_set_scratchpad_mode(attributes.get(), kUserScratchpad)) {
      return e;
    }
    if (const int e = api.matmul_primitive_desc_create(pd.out(), library.engine, a.get(), b.get(),
                                                       nullptr, d.get(), attributes.get())) {
      return e;
    }
    scratchpad = api.primitive_desc_query_md(pd.get(), kQueryScratchpad, 0);
    scratchpad_bytes = scratchpad != nullptr ? api.memory_desc_get_size(scratchpad) : 0;
    return kSuccess;
  }

  int Execute(const Library& library, Stream stream, const void* A, const void* B, void* D,
              void* scratch) const {
    const Api& api = library.api;
    OwnedMemory of_a(api), of_b(api), of_d(api), of_scratchpad(api);
    // The library takes operands that it only reads without const.
    const std::pair<OwnedMemory*, std::pair<MemoryDesc, const void*>> operands[] = {
        {&of_a, {a.get(), A}}, {&of_b, {b.get(), B}}, {&of_d, {d.get(), D}}};
    for (const auto& [memory, operand] : operands) {
      if (const int e = api.memory_create(memory->out(), operand.first, library.engine,
                                          const_cast<void*>(operand.second))) {
        return e;
      }
    }
    Argument arguments[] = {{kArgSource, of_a.get()},
                            {kArgWeights, of_b.get()},
                            {kArgDestination, of_d.get()},
                            {kArgScratchpad, nullptr}};
    int count = 3;
    if (scratchpad_bytes > 0) {
      if (const int e =
              api.memory_create(of_scratchpad.out(), scratchpad, library.engine, scratch)) {
        return e;
      }
      arguments[count++].memory = of_scratchpad.get();
    }
    return api.primitive_execute(primitive.get(), stream, count, arguments);
  }
};

/// D's shapes in a grid: inner parts, and those at the right and lower edges.
struct Shape {
  int rows, cols;
};
std::array<Shape, 4> ShapesOf(const Grid& grid) {
  const int last_rows = grid.m - (grid.row_parts() - 1) * grid.rows;
  const int last_cols = grid.n - (grid.col_parts() - 1) * grid.cols;
  return {{{grid.rows, grid.cols},
           {grid.rows, last_cols},
           {last_rows, grid.cols},
           {last_rows, last_cols}}};
}

// The first shape that equals shapes[i].
std::size_t FirstLike(const std::array<Shape, 4>& shapes, std::size_t i) {
  std::size_t same = 0;
  while (shapes[same].rows != shapes[i].rows || shapes[same].cols != shapes[i].cols) ++same;
  return same;
}

std::int64_t SumsPitch(const Grid& grid) noexcept {
  return static_cast<std::int64_t>(RoundUp(static_cast<std::size_t>(grid.cols), 16));
}
std::size_t SumsBytes(const Grid& grid) noexcept {
  return RoundUp(static_cast<std::size_t>(grid.rows) * static_cast<std::size_t>(SumsPitch(grid)) *
                     sizeof(float),
                 kLine);
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

  Status Make(int threads) {
    const int m = args_.Ddesc.rows, n = args_.Ddesc.cols;
    const std::lock_guard lock(MakingMutex());
    const OneThread one(library_);
    sums_.grid = SumsGrid(m, n, threads);
    CULET_RETURN_IF_ERROR(
        MakeCut(DataType::kFloat32, SumsPitch(sums_.grid), SumsBytes(sums_.grid), sums_));
    if (args_.operation.bias.data != nullptr || args_.Cdesc.type != DataType::kNull ||
        !WritesType(args_.Adesc.type, args_.Ddesc.type)) {
      return {};
    }
    direct_.grid = DirectGrid(m, n, threads);
    return MakeCut(args_.Ddesc.type, args_.Ddesc.ld, 0, direct_);
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
  Status MakeCut(DataType type_d, std::int64_t ldd, std::size_t before, Cut& cut) {
    const Operands operands{args_.Adesc.cols,  args_.Adesc.type, args_.Adesc.order,
                            args_.Bdesc.order, args_.Adesc.ld,   args_.Bdesc.ld};
    const auto shapes = ShapesOf(cut.grid);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      // Most grids have one or two shapes.
      const std::size_t same = FirstLike(shapes, i);
      if (same < i) {
        cut.parts[i] = cut.parts[same];
        continue;
      }
      auto part = std::make_shared<Part>(library_.api);
      int error = part->Describe(library_, operands, shape.rows, shape.cols, type_d, ldd);
      if (error == kSuccess) {
        error = library_.api.primitive_create(part->primitive.out(), part->pd.get());
      }
      if (error != kSuccess) {
        return Status(
            error == kOutOfMemory ? StatusCode::kResourceExhausted : StatusCode::kUnsupported,
            fmt::format("oneDNN {} refuses a product of {} x {} x {} (dnnl_status_t {})",
                        library_.version, shape.rows, shape.cols, operands.k, error));
      }
      if (before + part->scratchpad_bytes > thread_bytes_) {
        return Status(StatusCode::kUnsupported,
                      fmt::format("oneDNN {} wants {} bytes of scratchpad for these pitches, more "
                                  "than for tightly packed operands",
                                  library_.version, part->scratchpad_bytes));
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
    if (&cut == &direct_) {
      void* D = const_cast<void*>(At(args.D, args.Ddesc, row, col));
      return part.Execute(library_, stream.get(), A, B, D, own);
    }
    auto* const sums = reinterpret_cast<float*>(own);
    if (const int e = part.Execute(library_, stream.get(), A, B, sums, own + SumsBytes(grid))) {
      return e;
    }
    const Shape size = ShapesOf(grid)[shape];
    for (int r = 0; r < size.rows; ++r) {
      StoreRowOfSums(args, row + r, col, static_cast<std::size_t>(size.cols),
                     sums + r * SumsPitch(grid));
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
  Cut sums_;    // writes FP32 sums
  Cut direct_;  // writes D, where that is all there is to do
};

// Parts of at most `elements` elements.
Grid CutInto(int m, int n, int threads, int elements) noexcept {
  // Measured on two cores with AMX. Few rows: the time goes into B, which narrow parts read best.
  // Many: the library converts A for each part, at most a quarter of what it converts of B.
  constexpr int kFewRows = 32, kFewRowsCols = 128;
  constexpr int kMostRows = 512, kMostCols = 1024, kStep = 64;
  const int passes = (m - 1) / kMostRows + 1;
  Grid grid{m, n, (m - 1) / passes + 1, 0};
  const int wide = std::min(std::max(kMostCols, 4 * grid.rows), elements / grid.rows);
  const int most = grid.rows <= kFewRows ? kFewRowsCols : std::max(wide / kStep * kStep, kStep);
  const int of_thread = (n - 1) / std::max(1, threads) + 1;  // columns
  const int parts = (of_thread - 1) / most + 1;
  const int cols = (of_thread - 1) / parts + 1;
  grid.cols = std::min(n, (cols + kStep - 1) / kStep * kStep);
  return grid;
}

}  // namespace

Grid DirectGrid(int m, int n, int threads) noexcept { return CutInto(m, n, threads, 1 << 30); }

Grid SumsGrid(int m, int n, int threads) noexcept {
  constexpr int kElements = 1 << 18;
  return CutInto(m, n, threads, kElements);
}

std::size_t ThreadBytes(const Library& library, const GemmDesc& desc, int threads) noexcept {
  try {
    const Operands operands{desc.k,
                            desc.type_a,
                            desc.order_a,
                            desc.order_b,
                            desc.order_a == Order::kRowMajor ? desc.k : desc.m,
                            desc.order_b == Order::kRowMajor ? desc.n : desc.k};
    const Grid sums = SumsGrid(desc.m, desc.n, threads);
    const Grid direct = DirectGrid(desc.m, desc.n, threads);
    const std::lock_guard lock(MakingMutex());
    const OneThread one(library);
    // The scratchpad of a grid's largest shape.
    std::size_t bytes = SumsBytes(sums);
    const auto add = [&](const Grid& grid, DataType type_d, std::int64_t ldd, std::size_t before) {
      const auto shapes = ShapesOf(grid);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (FirstLike(shapes, i) < i) continue;
        Part part(library.api);
        if (part.Describe(library, operands, shapes[i].rows, shapes[i].cols, type_d, ldd) !=
            kSuccess) {
          return false;
        }
        bytes = std::max(bytes, before + part.scratchpad_bytes);
      }
      return true;
    };
    if (!add(sums, DataType::kFloat32, SumsPitch(sums), bytes)) return 0;
    if (WritesType(desc.type_a, desc.type_d) && !add(direct, desc.type_d, desc.n, 0)) return 0;
    return RoundUp(bytes, kLine);
  } catch (...) {
    return 0;
  }
}

Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const Library& library, const GemmArgs& args,
                                                      int threads, std::size_t thread_bytes) {
  auto matmul = std::make_unique<Matmul>(library, args, thread_bytes);
  CULET_RETURN_IF_ERROR(matmul->Make(threads));
  return std::unique_ptr<PreparedKernel>(std::move(matmul));
}

}  // namespace culet::onednn
