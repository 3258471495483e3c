// Models of tests/reference/seeded with a layer that predicts further tokens, whose tensors and
// logits are in tests/reference/seeded/predictors (tests/reference/make_predictors.py).
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/shared_data.h"

namespace kvant::test {

inline constexpr const char* kSeededPredictors = "predictors/";

// A model of tests/reference/seeded with the further layer of tests/reference/seeded/predictors.
class PredictingModel {
 public:
  explicit PredictingModel(const std::string& name) : seeded_(name) {
    const std::string path = SourcePath("tests/reference/seeded/" + (kSeededPredictors + name));
    const auto json = nlohmann::json::parse(std::ifstream(path + ".json"));
    for (const auto& row : json["tensors"]) seeded_.extra[row["name"]] = SeededWeights(row);
    expected_ = path + ".npy";
  }

  SeededModel& seeded() { return seeded_; }
  std::shared_ptr<const Model> Open(const std::string& isa = "", bool predictors = true) {
    return seeded_.Open({.isa = isa, .predictors = predictors});
  }
  std::vector<float> Expected() const {
    auto logits = formats::NpyRead(expected_);
    EXPECT_TRUE(logits.ok());
    return logits.ok() ? std::move(logits->values) : std::vector<float>();
  }

 private:
  SeededModel seeded_;
  std::string expected_;
};

}  // namespace kvant::test
