// Memory of a device whose work may hang on other ranks.
#pragma once

#include <memory>
#include <utility>

#include "culet/device_memory.h"
#include "culet/ranks.h"

namespace culet {

/// `inner`, of which no wait for the device ends well after an exchange has failed: what was
/// computed then is not what was asked for.
class WatchedMemory final : public DeviceMemory {
 public:
  WatchedMemory(DeviceMemory& inner, RankExchange& exchange) : inner_(inner), exchange_(exchange) {}

  Result<DevicePtr> Allocate(std::size_t bytes) override { return inner_.Allocate(bytes); }
  void Free(DevicePtr pointer) noexcept override { inner_.Free(pointer); }
  Status Upload(DevicePtr to, const void* from, std::size_t bytes, cudaStream_t stream) override {
    return Watched([&] { return inner_.Upload(to, from, bytes, stream); });
  }
  Status Download(void* to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    return Watched([&] { return inner_.Download(to, from, bytes, stream); });
  }
  Status Copy(DevicePtr to, DevicePtr from, std::size_t bytes, cudaStream_t stream) override {
    return inner_.Copy(to, from, bytes, stream);
  }
  Status Synchronize(cudaStream_t stream) override {
    return Watched([&] { return inner_.Synchronize(stream); });
  }
  bool reads_host_memory() const noexcept override { return inner_.reads_host_memory(); }
  std::optional<std::size_t> free_bytes() const noexcept override { return inner_.free_bytes(); }
  Result<void*> AllocateShared(std::size_t bytes) override { return inner_.AllocateShared(bytes); }
  void FreeShared(void* pointer) noexcept override { inner_.FreeShared(pointer); }
  Status StartUpload(DevicePtr to, const void* shared, std::size_t bytes,
                     cudaStream_t stream) override {
    return inner_.StartUpload(to, shared, bytes, stream);
  }
  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    auto event = inner_.MakeEvent();
    if (!event) return event;
    return std::unique_ptr<DeviceEvent>(std::make_unique<Event>(*this, *std::move(event)));
  }

 private:
  class Event final : public DeviceEvent {
   public:
    Event(WatchedMemory& memory, std::unique_ptr<DeviceEvent> inner)
        : memory_(memory), inner_(std::move(inner)) {}
    Status Record(cudaStream_t stream) override { return inner_->Record(stream); }
    Status Wait() override {
      return memory_.Watched([&] { return inner_->Wait(); });
    }

   private:
    WatchedMemory& memory_;
    std::unique_ptr<DeviceEvent> inner_;
  };

  template <class Call>
  Status Watched(const Call& call) {
    exchange_.BeginWait();
    const Status status = call();
    const Status exchanged = exchange_.EndWait();
    return exchanged.ok() ? status : exchanged;
  }

  DeviceMemory& inner_;
  RankExchange& exchange_;
};

}  // namespace culet
