// Shared by the tests of row blocks: texts of which stretches are replaced by rows that hold the
// embeddings of the tokens they replace. Such a text must have the bits of its tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "engine/arch/spec.h"
#include "kvant/runner.h"
#include "quant/format.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {

// The rows that the model makes of these tokens, behind its scale, [tokens][dim].
inline std::vector<float> EmbeddingsOf(const Model& model, std::span<const TokenId> tokens) {
  const arch::Stack& decoder = model.spec().stacks.front();
  const auto* table = model.file().FindTensor(std::string(decoder.input.tensor) + ".weight");
  EXPECT_NE(table, nullptr);
  std::vector<float> rows(tokens.size() * static_cast<size_t>(decoder.dim));
  for (size_t i = 0; i < tokens.size(); ++i) {
    float* row = rows.data() + i * static_cast<size_t>(decoder.dim);
    table->format->decode(table->data + tokens[i] * table->row_bytes(), row, decoder.dim);
    for (int64_t d = 0; d < decoder.dim; ++d) row[d] *= decoder.input.scale;
  }
  return rows;
}

inline RowIds AddRowsOf(Runner& runner, std::span<const TokenId> tokens) {
  const auto ids = runner.AddRows(EmbeddingsOf(runner.model(), tokens));
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : RowIds();
}

// The text with rows in place of tokens[begin, begin + count). Nobody but its sequences will hold
// the rows after FreeRows.
inline RowIds ReplaceByRows(Runner& runner, std::vector<TokenId>& tokens, size_t begin,
                            size_t count) {
  const RowIds ids = AddRowsOf(runner, std::span(tokens).subspan(begin, count));
  EXPECT_EQ(ids.count, static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) tokens[begin + i] = ids.first + static_cast<TokenId>(i);
  return ids;
}

}  // namespace kvant::test
