// Any bytes as a GGUF file: an error that says why, or metadata that reads as a config or says why
// not, and tensors that lie in the bytes.
#include <memory>
#include <vector>

#include "culet/decoder.h"
#include "fuzz.h"
#include "model/gguf_config.h"
#include "model/gguf_file.h"
#include "model/gguf_unpack.h"

using culet::FuzzRequire;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // In memory of exactly its size, so that a sanitizer sees every byte beyond.
  const auto exact = std::make_unique<std::byte[]>(size);
  for (std::size_t i = 0; i < size; ++i) exact[i] = std::byte{data[i]};
  const auto file = culet::GgufFile::Parse(exact.get(), size, "fuzz");
  if (!file.ok()) {
    FuzzRequire(file.status().message().size() > 6, "an error has a reason");
    return 0;
  }
  FuzzRequire(!culet::GgufMetadataText(*file).empty(), "metadata can be written");
  for (const culet::GgufTensor& tensor : file->tensors()) {
    FuzzRequire(tensor.bytes > 0 && tensor.rows() > 0, "sizes are above 0");
    FuzzRequire(tensor.data >= exact.get() && tensor.data + tensor.bytes <= exact.get() + size,
                "a tensor lies in the file");
    FuzzRequire(file->Find(tensor.name) == &tensor, "a tensor is found by its name");
    if (!tensor.type->known) continue;
    std::vector<float> row(static_cast<std::size_t>(tensor.cols()));
    culet::LoadGgufRow(tensor, tensor.rows() - 1, row);
    if (culet::HasCodes(tensor)) static_cast<void>(culet::UnpackGguf(tensor));
  }
  const auto config = culet::GgufConfigText(*file);
  if (config.ok()) static_cast<void>(culet::ParseDecoderConfig(*config, "fuzz"));
  return 0;
}
