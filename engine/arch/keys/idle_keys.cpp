#include "engine/arch/keys/idle_keys.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"
#include "engine/tokenizer/kinds.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

constexpr std::string_view kTokenizerKind = "tokenizer.ggml.model";

using formats::GgufArray;
using formats::GgufType;
using formats::GgufValue;

template <class Stored>
double StoredNumber(const std::byte* at) {
  Stored number{};
  std::memcpy(&number, at, sizeof number);
  return static_cast<double>(number);
}

// Element `i` of an array; nothing for strings.
std::optional<double> ElementOf(const GgufArray& array, uint64_t i) {
  const auto at = [&](size_t bytes) { return array.data + i * bytes; };
  switch (array.type) {
    case GgufType::kBool: return array.data[i] == std::byte{0} ? 0.0 : 1.0;
    case GgufType::kUint8: return StoredNumber<uint8_t>(at(1));
    case GgufType::kInt8: return StoredNumber<int8_t>(at(1));
    case GgufType::kUint16: return StoredNumber<uint16_t>(at(2));
    case GgufType::kInt16: return StoredNumber<int16_t>(at(2));
    case GgufType::kUint32: return StoredNumber<uint32_t>(at(4));
    case GgufType::kInt32: return StoredNumber<int32_t>(at(4));
    case GgufType::kFloat32: return StoredNumber<float>(at(4));
    case GgufType::kUint64: return StoredNumber<uint64_t>(at(8));
    case GgufType::kInt64: return StoredNumber<int64_t>(at(8));
    case GgufType::kFloat64: return StoredNumber<double>(at(8));
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return std::nullopt;
}

std::optional<double> NumberOf(const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value.value)) {
    return static_cast<double>(*number);
  }
  if (const auto* number = std::get_if<int64_t>(&value.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  if (const auto* truth = std::get_if<bool>(&value.value)) return *truth ? 1.0 : 0.0;
  return std::nullopt;
}

bool IsOnly(double number, const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return NumberOf(value) == number;
  for (uint64_t i = 0; i < array->count; ++i) {
    if (ElementOf(*array, i) != number) return false;
  }
  return true;
}

const GgufValue* ValueOf(const UnreadKey& key, std::string_view name) {
  return key.metadata.file().Find(key.metadata.Key(name));
}

// The number of another key; `otherwise` where it is absent.
double NumberAt(const UnreadKey& key, std::string_view name, double otherwise) {
  const GgufValue* value = ValueOf(key, name);
  return value == nullptr ? otherwise : NumberOf(*value).value_or(otherwise);
}

bool IsText(const UnreadKey& key, std::string_view name, std::string_view text) {
  const GgufValue* value = key.metadata.file().Find(name);
  const auto* found = value == nullptr ? nullptr : std::get_if<std::string_view>(&value->value);
  return found != nullptr && *found == text;
}

// The stacks of a decoder, or the one of an embedder.
std::vector<const Stack*> DecodersOf(const ModelSpec& spec) {
  std::vector<const Stack*> stacks;
  for (const Stack& stack : spec.stacks) stacks.push_back(&stack);
  if (spec.embedder.has_value()) stacks.push_back(&*spec.embedder);
  return stacks;
}

bool HasNoWindow(const UnreadKey& key) {
  for (const Stack* stack : DecodersOf(key.spec)) {
    for (const LayerSpec& layer : stack->layers) {
      for (const Sublayer& sublayer : layer.sublayers) {
        const auto* attention = std::get_if<Attention>(&sublayer.block);
        if (attention == nullptr) continue;
        if (attention->mask.window > 0) return false;
      }
    }
  }
  return true;
}

// Whether windows have what the key `name` gives all layers.
bool IsAsIn(const UnreadKey& key, std::string_view name) {
  const GgufValue* value = ValueOf(key, name);
  const auto number = value == nullptr ? std::nullopt : NumberOf(*value);
  return HasNoWindow(key) || (number.has_value() && IsOnly(*number, key.value));
}

}  // namespace

bool IsAlwaysIdle(const UnreadKey&) { return true; }
bool IsNeverIdle(const UnreadKey&) { return false; }
bool IsZero(const UnreadKey& key) { return IsOnly(0, key.value); }
bool IsOne(const UnreadKey& key) { return IsOnly(1, key.value); }
bool IsZeroOrOne(const UnreadKey& key) { return IsZero(key) || IsOne(key); }

bool HasNoDecoder(const UnreadKey& key) { return key.spec.stacks.empty(); }
bool HasNoExperts(const UnreadKey& key) {
  return IsZero(key) || NumberAt(key, "expert_count", 0) <= 1;
}
bool HasNoExpertGroups(const UnreadKey& key) {
  return HasNoExperts(key) || NumberAt(key, "expert_group_count", 0) <= 1;
}
bool IsTheFlow(const UnreadKey& key) {
  const auto is_parallel = [](const LayerSpec& layer) { return layer.flow == Flow::kParallel; };
  const bool any = std::ranges::any_of(DecodersOf(key.spec), [&](const Stack* stack) {
    return std::ranges::any_of(stack->layers, is_parallel);
  });
  return any ? IsOne(key) : IsZero(key);
}
bool HasNoTemperature(const UnreadKey& key) { return NumberAt(key, kTemperatureScaleKey, 0) == 0; }

bool HasNoRope(const UnreadKey& key) { return key.spec.ropes.empty(); }
bool HasNoYarn(const UnreadKey& key) {
  return HasNoRope(key) || !IsText(key, key.metadata.Key("rope.scaling.type"), "yarn");
}
bool HasNoYarnOrIsZero(const UnreadKey& key) { return HasNoYarn(key) || IsZero(key); }
bool HasNoYarnOrIsOne(const UnreadKey& key) { return HasNoYarn(key) || IsOne(key); }
bool RotatesHalves(const UnreadKey& key) {
  return IsZero(key) || std::ranges::all_of(key.spec.ropes, [](const RopeSpec& rope) {
           return rope.style == cpu::RopeStyle::kHalves;
         });
}

bool IsFreqBase(const UnreadKey& key) { return HasNoRope(key) || IsAsIn(key, "rope.freq_base"); }
bool IsDimensionCount(const UnreadKey& key) {
  return HasNoRope(key) || IsAsIn(key, "rope.dimension_count");
}
bool IsKeyLength(const UnreadKey& key) { return IsAsIn(key, "attention.key_length"); }
bool IsValueLength(const UnreadKey& key) { return IsAsIn(key, "attention.value_length"); }

bool IsZeroOrWordPiece(const UnreadKey& key) {
  return IsZero(key) || IsText(key, kTokenizerKind, kWordPieceKind);
}
bool IsZeroOrMerges(const UnreadKey& key) {
  return IsZero(key) || IsText(key, kTokenizerKind, kByteLevelBpeKind) ||
         IsText(key, kTokenizerKind, kGemma4Kind);
}

}  // namespace kvant::arch
