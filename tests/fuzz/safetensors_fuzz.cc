// Any bytes as a safetensors file: an error that says why, or tensors that lie in the bytes.
#include <memory>
#include <vector>

#include "culet/safetensors.h"
#include "fuzz.h"

using culet::FuzzRequire;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // In memory of exactly its size, so that a sanitizer sees every byte beyond.
  const auto exact = std::make_unique<std::byte[]>(size);
  for (std::size_t i = 0; i < size; ++i) exact[i] = std::byte{data[i]};
  const auto file = culet::SafetensorsFile::Parse(exact.get(), size, "fuzz");
  if (!file.ok()) {
    FuzzRequire(file.status().code() == culet::StatusCode::kDataLoss, "a bad file is DATA_LOSS");
    FuzzRequire(file.status().message().size() > 6, "an error has a reason");
    return 0;
  }
  const std::byte* next = nullptr;
  int sum = 0;
  for (const culet::SafetensorsTensor& tensor : file->tensors()) {
    FuzzRequire(tensor.bytes >= 0 && tensor.elements() >= 0, "sizes are not negative");
    FuzzRequire(tensor.data >= exact.get() && tensor.data + tensor.bytes <= exact.get() + size,
                "a tensor lies in the file");
    FuzzRequire(next == nullptr || tensor.data == next, "tensors lie one behind the other");
    FuzzRequire(file->Find(tensor.name) == &tensor, "a tensor is found by its name");
    next = tensor.data + tensor.bytes;
    for (std::int64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<int>(tensor.data[i]);
  }
  FuzzRequire(sum >= 0, "bytes are not negative");
  return 0;
}
