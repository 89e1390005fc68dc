// Writes GGUF files byte by byte, right and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace culet {

class GgufBuilder {
 public:
  template <class T>
  static std::string Bytes(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string Text(const std::string& text) {
    return Bytes(static_cast<std::uint64_t>(text.size())) + text;
  }

  void Raw(const std::string& key, std::uint32_t type, const std::string& value) {
    metadata += Text(key) + Bytes(type) + value;
    ++keys;
  }
  void Add(const std::string& key, const std::string& text) { Raw(key, 8, Text(text)); }
  void Add(const std::string& key, std::uint32_t number) { Raw(key, 4, Bytes(number)); }
  void Add(const std::string& key, bool flag) { Raw(key, 7, std::string(1, flag ? '\1' : '\0')); }
  void Add(const std::string& key, const char* text) { Add(key, std::string(text)); }
  void Add(const std::string& key, float number) { Raw(key, 6, Bytes(number)); }
  void AddTexts(const std::string& key, const std::vector<std::string>& texts) {
    std::string list = Bytes(std::uint32_t{8}) + Bytes(static_cast<std::uint64_t>(texts.size()));
    for (const std::string& text : texts) list += Text(text);
    Raw(key, 9, list);
  }
  void AddFlags(const std::string& key, const std::vector<bool>& flags) {
    std::string list = Bytes(std::uint32_t{7}) + Bytes(static_cast<std::uint64_t>(flags.size()));
    for (const bool flag : flags) list += flag ? '\1' : '\0';
    Raw(key, 9, list);
  }
  void AddInts(const std::string& key, const std::vector<std::int32_t>& numbers) {
    std::string list = Bytes(std::uint32_t{5}) + Bytes(static_cast<std::uint64_t>(numbers.size()));
    for (const std::int32_t number : numbers) list += Bytes(number);
    Raw(key, 9, list);
  }

  void Tensor(const std::string& name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
              const std::string& bytes) {
    TensorAt(name, sizes, type, data.size());
    data += bytes;
    data.resize((data.size() + 31) / 32 * 32);
  }
  void TensorAt(const std::string& name, const std::vector<std::uint64_t>& sizes,
                std::uint32_t type, std::uint64_t offset) {
    infos += Text(name) + Bytes(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) infos += Bytes(size);
    infos += Bytes(type) + Bytes(offset);
    ++tensors;
  }

  std::string File() const {
    std::string file = "GGUF" + Bytes(version) + Bytes(tensors) + Bytes(keys) + metadata + infos;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data;
  }
  void Write(const std::string& path) const {
    const std::string file = File();
    std::ofstream(path, std::ios::binary)
        .write(file.data(), static_cast<std::streamsize>(file.size()));
  }

  std::uint32_t version = 3;
  std::uint64_t tensors = 0, keys = 0;
  std::string metadata, infos, data;
};

}  // namespace culet
