#include "culet/dispatch_cache.h"

#include <array>
#include <atomic>
#include <concepts>
#include <istream>
#include <iterator>
#include <map>
#include <mutex>
#include <ostream>
#include <sstream>
#include <type_traits>

#include "base/fork_mutex.h"
#include "gemm/cache_record.h"
#include "gemm/cache_rules.h"
#include "gemm/cache_text.h"
#include "gemm/desc_fields.h"
#include "gemm/exchange_record.h"

namespace culet {
namespace {

// Words that hold all fields of a GemmDesc.
constexpr std::size_t kKeyWords = 21;

// A GemmDesc in words that compare in a few steps: all fields but the batch dimension, in the order
// of VisitFields, then the batch dimension. Problems that differ in batch alone are neighbours.
struct Key {
  std::array<std::uint64_t, kKeyWords> problem{};
  int batch = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

class KeyPacker {
 public:
  template <class T, class... Range>
  constexpr void operator()(const char*, const T& value, const Range&...) {
    constexpr std::size_t kBits = 8 * sizeof(T);
    if (bit_ % 64 + kBits > 64) bit_ += 64 - bit_ % 64;
    words_[bit_ / 64] |= Bits(value) << (64 - kBits - bit_ % 64);
    bit_ += kBits;
  }
  constexpr const std::array<std::uint64_t, kKeyWords>& words() const { return words_; }

 private:
  static constexpr std::uint64_t Bits(std::integral auto value) {
    return static_cast<std::make_unsigned_t<decltype(value)>>(value);
  }
  static constexpr std::uint64_t Bits(bool value) { return value ? 1 : 0; }
  template <class Enum>
  requires std::is_enum_v<Enum>
  static constexpr std::uint64_t Bits(Enum value) {
    return Bits(static_cast<std::underlying_type_t<Enum>>(value));
  }

  std::array<std::uint64_t, kKeyWords> words_{};
  std::size_t bit_ = 0;
};

constexpr Key KeyOf(GemmDesc desc) {
  const int batch = BatchOf(desc);
  (desc.batch_dim == 0 ? desc.m : desc.n) = 0;
  KeyPacker packer;
  VisitFields(desc, packer);
  return {packer.words(), batch};
}

// A constant expression must not write out of bounds, so this fails to compile if there are too few
// words.
static_assert(KeyOf(GemmDesc{}).batch == 0);

enum class Inserted { kRefused, kWorse, kEqual, kChanged };

// Reads the rest of the stream without touching its state bits, so that the caller can still Export
// to it.
Result<std::string> ReadAll(std::istream& is) {
  if (!is.good())
    return Status(StatusCode::kIo, "the stream cannot be read; check that it is open");
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (const auto got = is.rdbuf()->sgetn(chunk.data(), chunk.size())) {
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > CacheFile::kMaxBytes) {
      return Status(StatusCode::kDataLoss, "the stream is larger than " +
                                               std::to_string(CacheFile::kMaxBytes) +
                                               " bytes; that is not a dispatch cache");
    }
  }
  return text;
}

}  // namespace

const char* ToString(CacheLayer layer) noexcept {
  switch (layer) {
    case CacheLayer::kShipped:
      return "shipped";
    case CacheLayer::kSite:
      return "site";
    case CacheLayer::kUser:
      return "user";
  }
  return "invalid";
}

struct DispatchCache::Impl {
  using Entry = std::pair<GemmDesc, LaunchSpec>;
  struct Layered {
    Entry entry;
    CacheLayer layer;
  };

  Kernel* FindKernel(std::string_view id) const {
    const std::lock_guard lock(mutex);
    const auto found = kernels.find(id);
    return found != kernels.end() ? found->second : nullptr;
  }

  Inserted Insert(const GemmDesc& desc, const LaunchSpec& spec, CacheLayer layer) {
    // The kernel's own code runs outside the lock.
    if (spec.kernel == nullptr || FindKernel(spec.kernel->id()) != spec.kernel ||
        !IsRecordable(desc, spec) || !IsLaunchable(desc, spec)) {
      return Inserted::kRefused;
    }
    const std::lock_guard lock(mutex);
    const auto [found, is_new] = entries.try_emplace(KeyOf(desc), Layered{{desc, spec}, layer});
    if (is_new) {
      ++generation;
      return Inserted::kChanged;
    }
    Layered& known = found->second;
    const int order = ComparePrecedence(spec, layer, known.entry.second, known.layer);
    if (order <= 0) return order == 0 ? Inserted::kEqual : Inserted::kWorse;
    known.entry.second = spec;
    known.layer = layer;
    ++generation;
    return Inserted::kChanged;
  }

  std::string device_class;
  mutable ForkMutex mutex;  // guards all below
  std::map<std::string, Kernel*, std::less<>> kernels;
  std::map<Key, Layered> entries;
  std::atomic<std::uint64_t> generation = 0;  // written under the mutex
};

DispatchCache::DispatchCache(std::vector<Kernel*> kernels, std::string device_class)
    : impl_(std::make_unique<Impl>()) {
  impl_->device_class = device_class.empty() ? HostDevice().device_class : std::move(device_class);
  for (Kernel* kernel : kernels) AddKernel(kernel);
}
DispatchCache::~DispatchCache() = default;
DispatchCache::DispatchCache(DispatchCache&&) noexcept = default;
DispatchCache& DispatchCache::operator=(DispatchCache&&) noexcept = default;

void DispatchCache::AddKernel(Kernel* kernel) {
  if (kernel == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->kernels.try_emplace(kernel->id(), kernel);
}

Kernel* DispatchCache::FindKernel(std::string_view id) const { return impl_->FindKernel(id); }

std::optional<LaunchSpec> DispatchCache::Find(const GemmDesc& desc) const {
  const Key key = KeyOf(desc);
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->entries.find(key);
  if (found == impl_->entries.end()) return std::nullopt;
  return found->second.entry.second;
}

std::optional<CacheLayer> DispatchCache::LayerOf(const GemmDesc& desc) const {
  const Key key = KeyOf(desc);
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->entries.find(key);
  if (found == impl_->entries.end()) return std::nullopt;
  return found->second.layer;
}

std::optional<LaunchSpec> DispatchCache::LowerBound(const GemmDesc& desc) const {
  const auto below = FindNeighbours(desc).below;
  if (!below) return std::nullopt;
  return below->second;
}

DispatchCache::Neighbours DispatchCache::FindNeighbours(const GemmDesc& desc) const {
  const Key key = KeyOf(desc);
  Neighbours neighbours;
  const std::lock_guard lock(impl_->mutex);
  const auto& entries = impl_->entries;
  const auto at_or_above = entries.lower_bound(key);
  if (at_or_above != entries.end() && at_or_above->first.problem == key.problem) {
    neighbours.above = at_or_above->second.entry;
    if (at_or_above->first.batch == key.batch) {
      neighbours.below = neighbours.above;
      return neighbours;
    }
  }
  if (at_or_above != entries.begin()) {
    const auto below = std::prev(at_or_above);
    if (below->first.problem == key.problem) neighbours.below = below->second.entry;
  }
  return neighbours;
}

bool DispatchCache::Insert(const GemmDesc& desc, const LaunchSpec& spec) {
  return impl_->Insert(desc, spec, CacheLayer::kUser) == Inserted::kChanged;
}

bool DispatchCache::Erase(const GemmDesc& desc) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->entries.erase(KeyOf(desc)) == 0) return false;
  ++impl_->generation;
  return true;
}

int DispatchCache::Export(std::ostream& os) const {
  std::vector<std::string> lines;
  for (const auto& [desc, spec] : Entries())
    lines.push_back(WriteRecord(device_class(), desc, spec));
  os << ComposeCacheText({lines.begin(), lines.end()}).text;
  os.flush();
  return os.good() ? static_cast<int>(lines.size()) : -1;
}

int DispatchCache::Import(std::istream& is, ImportReport* report, CacheLayer layer) {
  ImportReport counts;
  const Result<std::string> text = ReadAll(is);
  const Status header = text.ok() ? CheckCacheHeader(*text) : text.status();
  if (!header.ok()) {
    counts.header_error = header.message();
    if (report != nullptr) *report = counts;
    return 0;
  }
  ForEachCacheLine(*text, [&](int line, std::string_view record_text) {
    if (IsExchangeRecord(record_text)) return;  // FindExchange reads those
    const ParsedRecord parsed = ReadRecord(record_text);
    if (parsed.state == RecordState::kOtherVersion) {
      ++counts.other_version;
    } else if (parsed.state == RecordState::kDamaged) {
      if (counts.damaged++ == 0) counts.first_damaged_line = line;
    } else {
      const ResolvedRecord resolved = Resolve(parsed.record, *this);
      switch (resolved.usability) {
        case Usability::kOtherDevice:
          ++counts.other_device;
          break;
        case Usability::kUnknownKernel:
          ++counts.unknown_kernel;
          break;
        case Usability::kUnavailable:
          ++counts.unavailable;
          break;
        case Usability::kOtherProvider:
          ++counts.other_provider;
          break;
        case Usability::kInfeasible:
          ++counts.infeasible;
          break;
        case Usability::kOtherVersion:
        case Usability::kDamaged:
          break;  // of lines that were not read
        case Usability::kUsable: {
          const Inserted inserted = impl_->Insert(parsed.record.desc, resolved.spec, layer);
          ++(inserted == Inserted::kWorse ? counts.outdated : counts.used);
          break;
        }
      }
    }
  });
  if (report != nullptr) *report = counts;
  return counts.used;
}

std::size_t DispatchCache::size() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->entries.size();
}

std::uint64_t DispatchCache::generation() const noexcept { return impl_->generation; }

const std::string& DispatchCache::device_class() const noexcept { return impl_->device_class; }

std::vector<std::pair<GemmDesc, LaunchSpec>> DispatchCache::Entries(CacheLayer least) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::pair<GemmDesc, LaunchSpec>> entries;
  entries.reserve(impl_->entries.size());
  for (const auto& [key, layered] : impl_->entries) {
    if (layered.layer >= least) entries.push_back(layered.entry);
  }
  return entries;
}

std::string ImportReport::ToString() const {
  if (!header_error.empty()) return "not read: " + header_error;
  std::ostringstream text;
  text << used << " used";
  const auto add = [&](int count, const char* what) {
    if (count > 0) text << ", " << count << what;
  };
  add(outdated, " outdated");
  add(other_device, " of another device class");
  add(unknown_kernel, " of unknown kernels");
  add(unavailable, " of libraries that are absent or left out");
  add(other_provider, " of other versions of a library");
  add(infeasible, " that the kernel refuses today");
  add(other_version, " of another version");
  add(damaged, " damaged");
  if (damaged > 0) {
    text << (damaged == 1 ? " (line " : " (first in line ") << first_damaged_line << ')';
  }
  return text.str();
}

}  // namespace culet
