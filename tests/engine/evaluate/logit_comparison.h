// Reading token lists and measuring how far two sets of logits are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace kvant::test {

// Ids separated by commas.
inline std::vector<int32_t> ReadTokenList(const std::string& path) {
  std::ifstream file(path);
  std::vector<int32_t> tokens;
  std::string word;
  while (std::getline(file, word, ',')) tokens.push_back(std::stoi(word));
  EXPECT_FALSE(tokens.empty()) << path;
  return tokens;
}

inline double LogTotal(std::span<const float> logits) {
  const double highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(total);
}

// Mean over `rows` of KL(expected || found) between the softmaxed rows of two [rows][vocab]
// matrices.
inline double MeanDivergence(std::span<const float> expected, std::span<const float> found,
                             size_t rows) {
  const size_t vocab = expected.size() / rows;
  double sum = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto p = expected.subspan(row * vocab, vocab);
    const auto q = found.subspan(row * vocab, vocab);
    const double p_total = LogTotal(p);
    const double q_total = LogTotal(q);
    for (size_t i = 0; i < vocab; ++i) {
      const double log_p = static_cast<double>(p[i]) - p_total;
      sum += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_total));
    }
  }
  return sum / static_cast<double>(rows);
}

}  // namespace kvant::test
