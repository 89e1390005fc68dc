#include "culet/registry.h"

#include <algorithm>
#include <utility>

namespace culet {

Registry::Registry() = default;
Registry::~Registry() = default;
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;

Status Registry::Add(std::unique_ptr<Kernel> kernel) {
  if (kernel == nullptr)
    return Status(StatusCode::kInvalidArgument, "kernel is null; pass a Kernel");
  if (kernel->id().empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "the kernel's KernelInfo::name is empty; give it a stable, unique id");
  }
  if (Find(kernel->id()) != nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "a kernel named '" + kernel->id() + "' is registered; choose another id");
  }
  const auto is_reference = [](const Kernel* k) {
    return k->desc().backend == Backend::kReference;
  };
  auto position = kernels_.end();
  if (!is_reference(kernel.get())) position = std::ranges::find_if(kernels_, is_reference);
  kernels_.insert(position, kernel.get());
  owned_.push_back(std::move(kernel));
  return {};
}

const std::vector<Kernel*>& Registry::kernels() const noexcept { return kernels_; }

Kernel* Registry::Find(std::string_view id) const noexcept {
  const auto found = std::ranges::find_if(kernels_, [&](const Kernel* k) { return k->id() == id; });
  return found != kernels_.end() ? *found : nullptr;
}

}  // namespace culet
