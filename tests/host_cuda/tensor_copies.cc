// Tensor maps, as the driver makes them, and copies of their boxes.
#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "async.h"
#include "async_state.h"
#include "running_threads.h"

namespace culet::host_cuda {
namespace {

constexpr std::uint32_t kMark = 0x7E4507;
constexpr int kMostAxes = 5;

// What a CUtensorMap holds here.
struct Map {
  char* base;
  cuuint64_t extents[kMostAxes];
  cuuint64_t pitches[kMostAxes - 1];  // bytes, of all axes but the first
  cuuint32_t mark;
  std::uint16_t box[kMostAxes];
  std::uint8_t axes, element;
  std::uint8_t swizzle;  // bits of a line's number that change the place of a chunk
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));

Map Decode(const void* encoded) {
  Map map;
  std::memcpy(&map, encoded, sizeof map);
  if (map.mark != kMark) Fail("a tensor copy without a tensor map");
  if (reinterpret_cast<std::uintptr_t>(encoded) % 64 != 0) Fail("a tensor map that is not aligned");
  return map;
}

void Encode(const Map& map, CUtensorMap* encoded) {
  *encoded = {};
  std::memcpy(static_cast<void*>(encoded), &map, sizeof map);
}

bool IsAligned(const void* address) { return std::bit_cast<std::uintptr_t>(address) % 16 == 0; }

CUresult EncodeTiled(CUtensorMap* encoded, CUtensorMapDataType type, cuuint32_t axes, void* base,
                     const cuuint64_t* extents, const cuuint64_t* pitches, const cuuint32_t* box,
                     const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr cuuint64_t kMostExtent = cuuint64_t{1} << 32, kMostPitch = cuuint64_t{1} << 40;
  constexpr cuuint32_t kMostBox = 256;
  Map map{};
  map.mark = kMark;
  map.base = static_cast<char*>(base);
  map.element = type == CU_TENSOR_MAP_DATA_TYPE_UINT8     ? 1
                : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4
                                                          : 2;
  map.axes = static_cast<std::uint8_t>(axes);
  map.swizzle = static_cast<std::uint8_t>(swizzle);
  bool good = std::bit_cast<std::uintptr_t>(encoded) % 64 == 0 && IsAligned(base) && axes >= 1 &&
              axes <= kMostAxes;
  for (cuuint32_t i = 0; good && i < axes; ++i) {
    good = extents[i] >= 1 && extents[i] <= kMostExtent && box[i] >= 1 && box[i] <= kMostBox &&
           steps[i] == 1;
    if (i > 0) good &= pitches[i - 1] % 16 == 0 && pitches[i - 1] < kMostPitch;
    map.extents[i] = extents[i];
    map.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i > 0) map.pitches[i - 1] = pitches[i - 1];
  }
  const cuuint32_t row = good ? box[0] * map.element : 0;
  constexpr cuuint32_t kWidths[] = {kMostBox * 4, 32, 64, 128};
  good = good && row % 16 == 0 && row <= kWidths[swizzle];
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  Encode(map, encoded);
  return CUDA_SUCCESS;
}

CUresult ReplaceAddress(CUtensorMap* encoded, void* base) {
  Map map;
  std::memcpy(&map, encoded, sizeof map);
  if (map.mark != kMark || !IsAligned(base)) return CUDA_ERROR_INVALID_VALUE;
  map.base = static_cast<char*>(base);
  Encode(map, encoded);
  return CUDA_SUCCESS;
}

// Calls use(global, first, last, shared) for each row of a box: bytes [first, last) of the row are
// inside the tensor, and byte 0 belongs to byte `shared` of the box.
template <class Use>
void ForRows(const Map& map, const std::array<int, kMostAxes>& at, Use use) {
  const std::int64_t row_bytes = std::int64_t{map.box[0]} * map.element;
  std::int64_t rows = 1;
  for (int i = 1; i < map.axes; ++i) rows *= map.box[i];
  const auto clip = [&](std::int64_t element) {
    return std::clamp<std::int64_t>(element - at[0], 0, map.box[0]) * map.element;
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    bool inside = true;
    char* global = map.base + std::int64_t{at[0]} * map.element;
    for (std::int64_t i = 1, left = row; i < map.axes; left /= map.box[i], ++i) {
      const std::int64_t place = at[static_cast<std::size_t>(i)] + left % map.box[i];
      inside &= place >= 0 && place < static_cast<std::int64_t>(map.extents[i]);
      global += place * static_cast<std::int64_t>(map.pitches[i - 1]);
    }
    const std::int64_t first = clip(0), last = clip(static_cast<std::int64_t>(map.extents[0]));
    use(global, inside ? first : 0, inside ? last : 0, row * row_bytes);
  }
}

// Where byte `offset` of shared memory lies: hardware swizzles the bits of the address.
std::int64_t Swizzled(const Map& map, std::int64_t offset) {
  return offset ^ ((offset >> 7 & ((1 << map.swizzle) - 1)) << 4);
}

std::array<int, kMostAxes> Place(const Map& map, std::span<const int> at) {
  std::array<int, kMostAxes> place{};
  if (at.size() != map.axes) {
    Fail(fmt::format("a copy along {} axes, of a map of {}", at.size(), int{map.axes}));
  }
  std::copy(at.begin(), at.end(), place.begin());
  // Measured: what begins within 16 bytes of the contiguous axis does not come.
  if (at[0] * map.element % 16 != 0) Fail("a tensor copy that begins within 16 bytes");
  return place;
}

std::int64_t SharedPlace(const void* shared) {
  const std::int64_t offset = static_cast<const char*>(shared) - DynamicShared();
  if (offset < 0 || offset >= static_cast<std::int64_t>(SharedBytes()) || offset % 128 != 0) {
    Fail(fmt::format("a tensor copy at byte {} of shared memory", offset));
  }
  return offset;
}

std::int64_t BoxBytes(const Map& map) {
  std::int64_t bytes = map.element;
  for (int i = 0; i < map.axes; ++i) bytes *= map.box[i];
  return bytes;
}

}  // namespace

void ReadMap(const void* map) { Decode(map); }

void LoadBox(void* to, const void* encoded, std::uint64_t* barrier, std::span<const int> at,
             std::uint32_t mask) {
  const Map map = Decode(encoded);
  const std::int64_t offset = SharedPlace(to);
  const std::int64_t barrier_at = reinterpret_cast<char*>(barrier) - DynamicShared();
  const auto limit = static_cast<std::int64_t>(SharedBytes());
  if (offset + BoxBytes(map) > limit) Fail("a box ends beyond shared memory");
  const auto place = Place(map, at);
  for (int rank = 0; mask >> rank != 0; ++rank) {
    if ((mask >> rank & 1) == 0) continue;
    auto transfer = std::make_shared<Transfer>();
    transfer->work = [=] {
      char* const shared = SharedOfCluster(rank);
      ForRows(map, place, [&](const char* global, auto first, auto last, auto row_at) {
        const std::int64_t row_bytes = std::int64_t{map.box[0]} * map.element;
        for (std::int64_t i = 0; i < row_bytes; i += 16) {
          char chunk[16] = {};
          const std::int64_t begin = std::max<std::int64_t>(first, i),
                             end = std::min<std::int64_t>(last, i + 16);
          if (begin < end)
            std::memcpy(chunk + (begin - i), global + begin, static_cast<std::size_t>(end - begin));
          std::memcpy(shared + Swizzled(map, offset + row_at + i), chunk, sizeof chunk);
        }
      });
      CompleteBytes(reinterpret_cast<std::uint64_t*>(shared + barrier_at),
                    static_cast<std::uint32_t>(BoxBytes(map)));
    };
    Later(std::move(transfer));
  }
}

void LoadBytes(void* to, const void* from, int bytes, std::uint64_t* barrier) {
  const std::int64_t offset = static_cast<char*>(to) - DynamicShared();
  if (bytes <= 0 || bytes % 16 != 0 || offset % 16 != 0 || !IsAligned(from)) {
    Fail(fmt::format("a bulk copy of {} bytes to byte {} of shared memory", bytes, offset));
    return;
  }
  if (offset < 0 || offset + bytes > static_cast<std::int64_t>(SharedBytes())) {
    Fail("a bulk copy ends beyond shared memory");
    return;
  }
  auto transfer = std::make_shared<Transfer>();
  transfer->work = [=] {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    CompleteBytes(barrier, static_cast<std::uint32_t>(bytes));
  };
  Later(std::move(transfer));
}

void StoreBox(const void* encoded, const void* from, std::span<const int> at) {
  const Map map = Decode(encoded);
  const std::int64_t offset = SharedPlace(from);
  if (offset + BoxBytes(map) > static_cast<std::int64_t>(SharedBytes())) {
    Fail("a box ends beyond shared memory");
  }
  const auto place = Place(map, at);
  const char* const shared = DynamicShared();
  RunningAsync().open_stores.emplace_back([=] {
    ForRows(map, place, [&](char* global, auto first, auto last, auto row_at) {
      // Whole pieces of 16 bytes, even where the map ends inside one (measured).
      for (std::int64_t i = first / 16 * 16; i < last; i += 16)
        std::memcpy(global + i, shared + Swizzled(map, offset + row_at + i), 16);
    });
  });
}

void CommitStores() {
  AsyncThread& thread = RunningAsync();
  thread.stores.push_back(std::exchange(thread.open_stores, {}));
  if (Coin()) AwaitStores(0);
}

void AwaitStores(int pending) {
  auto& groups = RunningAsync().stores;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    for (const auto& store : groups.front()) store();
    groups.erase(groups.begin());
  }
}

}  // namespace culet::host_cuda

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, int,
                                             cudaDriverEntryPointQueryResult* found) {
  *found = cudaDriverEntryPointSuccess;
  if (std::string_view(name) == "cuTensorMapEncodeTiled") {
    *function = reinterpret_cast<void*>(&culet::host_cuda::EncodeTiled);
  } else if (std::string_view(name) == "cuTensorMapReplaceAddress") {
    *function = reinterpret_cast<void*>(&culet::host_cuda::ReplaceAddress);
  } else {
    *found = cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}
