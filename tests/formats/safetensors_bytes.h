// Builds safetensors files for the tests from the format's description, independently of the
// reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvant::test {

inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + header + data;
}

// Lays tensors out one after the other.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& Add(const std::string& name, const std::string& type,
                          const std::vector<int64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", type},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
    return *this;
  }

  SafetensorsBuilder& AddF32(const std::string& name, const std::vector<int64_t>& shape,
                             const std::vector<float>& values) {
    return Add(name, "F32", shape,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string Bytes() const { return SafetensorsBytes(header_.dump(), data_); }

  void Write(const std::string& path) const { std::ofstream(path, std::ios::binary) << Bytes(); }

 private:
  nlohmann::json header_ = {{"__metadata__", {{"format", "pt"}}}};
  std::string data_;
};

}  // namespace kvant::test
