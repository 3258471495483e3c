// Samplers over rows of 20,000 tokens without top-k: what is found by ranges of logits must be what
// a plain sort and walk finds, token for token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/generate/portable_math.h"
#include "kvant/random.h"
#include "kvant/sampler.h"

namespace kvant {
namespace {

constexpr int32_t kVocab = 20000;
constexpr uint64_t kSeed = 11;

using LargeRow = std::vector<float>;

struct Sorted {
  TokenId id;
  double logit;
  uint64_t weight;
};
using SortedRow = std::vector<Sorted>;

uint64_t Weigh(SortedRow& row, double temperature) {
  const double best = std::max_element(row.begin(), row.end(), [](const auto& a, const auto& b) {
                        return a.logit < b.logit;
                      })->logit;
  uint64_t total = 0;
  for (Sorted& entry : row) {
    const double distance = entry.logit - best;
    entry.weight = distance < -28 * temperature
                       ? 0
                       : static_cast<uint64_t>(PortableExp(distance / temperature) * kWeightOne);
    total += entry.weight;
  }
  return total;
}

SortedRow SortedBy(const LargeRow& logits) {
  SortedRow row;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kLogitNone) continue;
    row.push_back({static_cast<TokenId>(i), static_cast<double>(logits[i]), 0});
  }
  std::stable_sort(row.begin(), row.end(),
                   [](const Sorted& a, const Sorted& b) { return a.logit > b.logit; });
  return row;
}

void PlainTopP(SortedRow& row, double p) {
  const double enough = static_cast<double>(Weigh(row, 1)) * p;
  uint64_t sum = 0;
  size_t count = 0;
  while (count < row.size() && static_cast<double>(sum) < enough) sum += row[count++].weight;
  row.resize(std::max(count, size_t{1}));
}

void PlainMinP(SortedRow& row, double p) {
  const double least = row[0].logit + PortableLog(p);
  std::erase_if(row, [least](const Sorted& entry) { return entry.logit < least; });
}

void PlainTypical(SortedRow& row, double p) {
  std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const double total = static_cast<double>(Weigh(row, 1));
  const double log_total = PortableLog(total);
  double entropy = 0;
  for (const Sorted& entry : row) {
    const double weight = static_cast<double>(entry.weight);
    if (weight > 0) entropy += weight / total * (log_total - PortableLog(weight));
  }
  std::erase_if(row, [](const Sorted& entry) { return entry.weight == 0; });
  const auto distance = [&](const Sorted& entry) {
    return std::fabs(log_total - PortableLog(static_cast<double>(entry.weight)) - entropy);
  };
  std::stable_sort(row.begin(), row.end(),
                   [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  uint64_t sum = 0;
  size_t count = 0;
  while (count < row.size() && !(static_cast<double>(sum) > total * p)) sum += row[count++].weight;
  row.resize(count);
  std::stable_sort(row.begin(), row.end(), [](const auto& a, const auto& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
}

void PlainXtc(SortedRow& row, double threshold) {
  const double least = threshold * static_cast<double>(Weigh(row, 1));
  size_t reached = 0;
  while (reached < row.size() && static_cast<double>(row[reached].weight) >= least) ++reached;
  if (reached >= 2) row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(reached) - 1);
}

// Version 2 before its first token; mu is 2 tau.
void PlainMirostat(SortedRow& row, double tau) {
  const double log_total = PortableLog(static_cast<double>(Weigh(row, 1)));
  std::erase_if(row, [&](const Sorted& entry) {
    const double log_weight = PortableLog(static_cast<double>(entry.weight));
    return entry.id != row[0].id && (log_total - log_weight) / std::log(2.0) > 2 * tau;
  });
}

struct LargeCase {
  const char* name;
  std::function<void(SamplingOptions&)> set;
  std::function<void(SortedRow&, Xoshiro256&)> leave;
};

std::vector<LargeCase> LargeCases() {
  std::vector<LargeCase> cases;
  cases.push_back({"plain", [](auto&) {}, [](auto&, auto&) {}});
  for (const float p : {0.05f, 0.5f, 0.95f, 0.9999f}) {
    const double exact = static_cast<double>(p);
    cases.push_back({"top-p", [p](auto& o) { o.top_p = p; },
                     [exact](auto& row, auto&) { PlainTopP(row, exact); }});
    cases.push_back({"typical", [p](auto& o) { o.typical = p; },
                     [exact](auto& row, auto&) { PlainTypical(row, exact); }});
  }
  for (const float p : {0.9f, 0.1f, 0.001f, 1e-6f}) {
    const double exact = static_cast<double>(p);
    cases.push_back({"min-p", [p](auto& o) { o.min_p = p; },
                     [exact](auto& row, auto&) { PlainMinP(row, exact); }});
  }
  for (const float threshold : {0.1f, 0.001f, 0.00004f}) {
    const double exact = static_cast<double>(threshold);
    cases.push_back({"xtc",
                     [threshold](auto& o) {
                       o.xtc_probability = 1;
                       o.xtc_threshold = threshold;
                     },
                     [exact](auto& row, auto& random) {
                       random.Next();
                       PlainXtc(row, exact);
                     }});
  }
  for (const float tau : {1.0f, 5.0f, 7.1f, 12.0f}) {
    const double exact = static_cast<double>(tau);
    cases.push_back({"mirostat",
                     [tau](auto& o) {
                       o.mirostat = 2;
                       o.mirostat_tau = tau;
                     },
                     [exact](auto& row, auto&) { PlainMirostat(row, exact); }});
  }
  return cases;
}

std::vector<std::pair<std::string, LargeRow>> LargeRows() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::pair<std::string, LargeRow>> rows;
  const auto add = [&](std::string name, const std::function<float(size_t)>& logit) {
    LargeRow row(kVocab);
    for (size_t i = 0; i < row.size(); ++i) row[i] = logit(i);
    rows.emplace_back(std::move(name), std::move(row));
  };
  for (const float deviation : {0.1f, 1.0f, 3.0f, 10.0f}) {
    add("normal", [&](size_t) { return deviation * normal(random); });
  }
  add("equal", [](size_t) { return 1.5f; });
  add("few values", [&](size_t) { return std::round(2 * normal(random)) / 2; });
  add("zipf", [](size_t i) {
    return -4 * std::log(static_cast<float>(i * 7919 % kVocab) + 1.0f) / std::log(10.0f);
  });
  add("half gone", [&](size_t i) { return i % 2 == 0 ? kLogitNone : normal(random); });
  add("one far above", [&](size_t i) { return i == 777 ? 40.0f : normal(random); });
  add("geometric", [](size_t i) { return -std::ldexp(1.0f, -static_cast<int>(i % 20)); });
  return rows;
}

TEST(LargeRows, SamplersFindWhatSortingFinds) {
  for (const auto& [row_name, logits] : LargeRows()) {
    for (const LargeCase& entry : LargeCases()) {
      for (const float temperature : {1.0f, 0.7f}) {
        if (temperature != 1 && std::string(entry.name) == "mirostat") continue;
        SCOPED_TRACE(testing::Message() << row_name << ", " << entry.name << " at " << temperature);
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = 0;
        options.top_p = 1;
        options.min_p = 0;
        options.seed = kSeed;
        entry.set(options);
        Sampler sampler = Sampler::Create(options, kVocab).value();
        Xoshiro256 random(kSeed);
        for (int draw = 0; draw < 4; ++draw) {
          SortedRow row = SortedBy(logits);
          entry.leave(row, random);
          const uint64_t target = random.Below(Weigh(row, static_cast<double>(temperature)));
          uint64_t sum = 0;
          size_t chosen = 0;
          while ((sum += row[chosen].weight) <= target) ++chosen;
          ASSERT_EQ(sampler.Sample(logits).value(), row[chosen].id) << draw;
          if (options.mirostat != 0) break;  // mu has changed
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvant
