// Registry: the ordered list of kernels that compete. Best first, the reference last.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// Owns kernels. Order is preference: among equals the earlier one wins. Adding is not safe while
/// another thread uses the registry.
class Registry {
 public:
  /// Empty: for tests and for users who want their own kernels only.
  Registry();
  ~Registry();
  Registry(Registry&&) noexcept;
  Registry& operator=(Registry&&) noexcept;

  /// All kernels of this library that `device` can run, the reference last.
  static Registry Builtin(const DeviceInfo& device);

  /// The same, of which those compete whose KernelDesc::provider is in `providers`, a list like
  /// "own,cublaslt" ("own": culet's kernels, "all": all); the others say in `explain` that they are
  /// left out. Empty: the environment's CULET_PROVIDERS, else all. The reference always competes.
  /// Errors: INVALID_ARGUMENT for a name that is no provider's, with those that are.
  static Result<Registry> Builtin(const DeviceInfo& device, const std::string& providers);

  /// Adds a kernel after the existing ones, but before any reference. Errors: INVALID_ARGUMENT for
  /// null, an empty id, or an id that is taken.
  Status Add(std::unique_ptr<Kernel> kernel);

  /// All kernels in order. The pointers stay valid as long as the registry.
  const std::vector<Kernel*>& kernels() const noexcept;

  /// The kernel with this id, or null.
  Kernel* Find(std::string_view id) const noexcept;

 private:
  std::vector<std::unique_ptr<Kernel>> owned_;
  std::vector<Kernel*> kernels_;
};

}  // namespace culet
