// Models whose weights are damaged.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvant/token_id.h"

namespace kvant::test {

// Writes NaN over the embedding of a token, which must be of type F32: all logits from that token
// on are NaN, and those before it are numbers.
inline void DamageToken(const std::string& path, TokenId token) {
  size_t offset = 0;
  std::vector<float> row;
  {
    const auto file = formats::GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const formats::GgufTensor* tensor = file->FindTensor("token_embd.weight");
    ASSERT_NE(tensor, nullptr);
    row.assign(static_cast<size_t>(tensor->dims[0]), std::numeric_limits<float>::quiet_NaN());
    offset = static_cast<size_t>(tensor->data - file->mappings()[0].bytes().data()) +
             static_cast<size_t>(token) * row.size() * sizeof(float);
  }
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.write(reinterpret_cast<const char*>(row.data()),
               static_cast<std::streamsize>(row.size() * sizeof(float)));
  ASSERT_TRUE(stream.good());
}

}  // namespace kvant::test
