#include "engine/arch/hf/hf_ngrams.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "engine/limits.h"

namespace kvant::arch {
namespace {

using formats::Json;

constexpr int64_t kRowsUsual = 20'000'000;  // of a head, at least
constexpr int64_t kDivisorUsual = 128;      // of all rows
constexpr int64_t kShardsUsual = 512;
constexpr int64_t kSeedUsual = 1234;
constexpr int64_t kHeadsUsual = 8;
constexpr int64_t kSizeUsual = 3;
constexpr int64_t kTapsUsual = 4;

constexpr int64_t kRowsMax = 1 << 30;
constexpr int64_t kTableHeadsMax = 4096;
constexpr int64_t kShardsMax = 1 << 16;
constexpr int64_t kSizeMax = 64;

Result<int64_t> CountOr(const JsonObject& config, std::string_view key, int64_t max,
                        int64_t otherwise) {
  const Json* given = config.Find(key);
  if (given == nullptr || given->is_null()) return otherwise;
  return config.Count(key, max);
}

// The layer of the n-grams; nothing where the model has none. Layers are counted from 1.
Result<std::optional<int64_t>> ReadLayer(const JsonObject& config, const HfShape& shape) {
  constexpr std::string_view kKey = "ple_layer_ids";
  KVANT_ASSIGN(const auto ids, config.Numbers(kKey));
  if (!ids || ids->empty()) return std::optional<int64_t>();
  if (ids->size() > 1) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: n-grams in {} layers are not supported, expected one", config.Where(kKey),
                     ids->size());
  }
  const auto layer = static_cast<int64_t>(ids->front());
  if (static_cast<float>(layer) != ids->front() || layer < 1 || layer > shape.layers ||
      shape.attention_layers[static_cast<size_t>(layer - 1)]) {
    return config.Wrong(kKey,
                        fmt::format("a layer with linear attention, from 1 to {}", shape.layers));
  }
  return std::optional(layer - 1);
}

// The rows of each head.
Result<std::vector<int64_t>> HeadRows(const JsonObject& config, const HfNgrams& ngrams) {
  KVANT_ASSIGN(const int64_t base, CountOr(config, "ngram_vocab_size_base", kRowsMax, kRowsUsual));
  return PrimesFrom(base, ngrams.token_rows());
}

// The token that ends a text, the first one of a list.
Result<int64_t> ReadEos(const JsonObject& config) {
  constexpr std::string_view kKey = "eos_token_id";
  const Json* eos = config.Find(kKey);
  const Json* one = eos != nullptr && eos->is_array() && !eos->empty() ? &eos->front() : eos;
  if (one == nullptr || !one->is_number_unsigned() || one->get<uint64_t>() >= kHfVocabMax) {
    return config.Wrong(kKey, "a token, which n-grams end at");
  }
  return one->get<int64_t>();
}

uint64_t SplitMix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

std::vector<int64_t> PrimesFrom(int64_t base, int64_t count) {
  const auto is_prime = [](int64_t value) {
    if (value < 4) return value > 1;
    if (value % 2 == 0) return false;
    for (int64_t divisor = 3; divisor * divisor <= value; divisor += 2) {
      if (value % divisor == 0) return false;
    }
    return true;
  };
  std::vector<int64_t> primes;
  for (int64_t value = base; std::ssize(primes) < count; ++value) {
    if (is_prime(value)) primes.push_back(value);
  }
  return primes;
}

std::vector<uint64_t> NgramMultipliers(int64_t vocab, int64_t count, uint64_t seed) {
  constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // of splitmix64
  const uint64_t half =
      std::max<uint64_t>(1, kMost / std::max<uint64_t>(1, static_cast<uint64_t>(vocab)) / 2);
  std::vector<uint64_t> multipliers;
  for (uint64_t i = 1; i <= static_cast<uint64_t>(count); ++i) {
    multipliers.push_back(2 * (SplitMix(seed + kStep * i) % half) + 1);
  }
  return multipliers;
}

Status ReadNgramShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto layer, ReadLayer(config, shape));
  if (!layer) return {};
  HfNgrams& ngrams = shape.ngrams;
  ngrams.layer = *layer;
  KVANT_ASSIGN(ngrams.size, CountOr(config, "ngram_size", kSizeMax, kSizeUsual));
  if (ngrams.size < 2) return config.Wrong("ngram_size", "at least 2");
  KVANT_ASSIGN(ngrams.heads,
               CountOr(config, "heads_per_ngram", kTableHeadsMax / (ngrams.size - 1), kHeadsUsual));
  KVANT_ASSIGN(ngrams.dim, CountOr(config, "ple_embed_dim", kDimMax, shape.dim));
  if (ngrams.dim % ngrams.token_rows() != 0) {
    return config.Wrong("ple_embed_dim", fmt::format("a multiple of {}", ngrams.token_rows()));
  }
  KVANT_ASSIGN(ngrams.taps, CountOr(config, "ple_conv_kernel_size", kConvTapsMax, kTapsUsual));
  if (ngrams.taps < 2) return config.Wrong("ple_conv_kernel_size", "at least 2");
  KVANT_ASSIGN(ngrams.shards, CountOr(config, "split_ngram_parts", kShardsMax, kShardsUsual));
  KVANT_ASSIGN(const auto heads, HeadRows(config, ngrams));
  KVANT_ASSIGN(const int64_t divisor,
               CountOr(config, "make_ngram_vocab_size_divisible_by", kRowsMax, kDivisorUsual));
  const int64_t rows = std::accumulate(heads.begin(), heads.end(), int64_t{0});
  ngrams.rows = (rows + divisor - 1) / divisor * divisor;
  return {};
}

Status AddNgramParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const HfNgrams& ngrams = shape.ngrams;
  if (ngrams.layer < 0) return {};
  const auto add = [&out](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  out.writer->AddI32s(out.Key("ple.layers"), {static_cast<int32_t>(ngrams.layer)});
  add("ple.ngram_size", ngrams.size);
  add("ple.heads_per_ngram", ngrams.heads);
  add("ple.conv_kernel", ngrams.taps);
  KVANT_ASSIGN(const int64_t eos, ReadEos(config));
  add("ple.eos_token_id", eos);
  KVANT_ASSIGN(const auto image, config.Integer("image_token_id", kHfVocabMax));
  if (image) add("ple.image_token_id", *image);
  add("embedding_length_per_layer_input", ngrams.dim / ngrams.token_rows());

  KVANT_ASSIGN(const auto seed, config.Integer("seed", INT64_MAX));
  const std::vector<uint64_t> multipliers =
      NgramMultipliers(shape.vocab, ngrams.size, static_cast<uint64_t>(seed.value_or(kSeedUsual)));
  KVANT_ASSIGN(const auto heads, HeadRows(config, ngrams));
  std::vector<int64_t> offsets(heads.size());
  std::exclusive_scan(heads.begin(), heads.end(), offsets.begin(), int64_t{0});
  out.writer->AddU64s(out.Key("ple.layer_multipliers"), multipliers);
  out.writer->AddU64s(out.Key("ple.head_offsets"), {offsets.begin(), offsets.end()});
  out.writer->AddU64s(out.Key("ple.head_vocab_sizes"), {heads.begin(), heads.end()});
  const std::string prefix = fmt::format("model.layers.{}.ple.ple_embedding.", ngrams.layer);
  out.integers = {{prefix + "layer_multipliers", {multipliers.begin(), multipliers.end()}},
                  {prefix + "ngram_heads_offsets", offsets},
                  {prefix + "ngram_heads_vocab_sizes", heads}};
  return {};
}

}  // namespace kvant::arch
