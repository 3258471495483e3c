// The rule that a key which changes what a model computes is never ignored: keys that llama.cpp
// knows, put into a model of every family, and single keys by name. The list of llama.cpp's keys is
// written by tests/reference/make_llama_cpp_keys.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/arch/family.h"
#include "engine/arch/keys/key_rows.h"
#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/arch/spec_of_metadata.h"
#include "tests/engine/convert/hf_reference_folder.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using formats::GgufType;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Collects what the library says.
class Said {
 public:
  Said() {
    SetLogSink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) lines_.emplace_back(line);
    });
  }
  ~Said() { SetLogSink({}); }
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

 private:
  std::vector<std::string> lines_;
};

std::map<std::string, std::string> LlamaCppKeys() {
  const std::string path = SourcePath("tests/reference/llama_cpp_keys.json");
  return nlohmann::json::parse(std::ifstream(path));
}

// Entries of a key with values that mean something, by the type that llama.cpp's writer gives it.
std::vector<Bytes> EntriesOf(const std::string& key, const std::string& type) {
  if (type == "float32") return {Key(key, GgufType::kFloat32).Number(0.37f)};
  if (type == "string") return {Key(key, GgufType::kString).String("x")};
  if (type == "array") return {ArrayEntry(key, GgufType::kInt32, 2).U32(3).U32(5)};
  if (type == "bool") {
    return {Key(key, GgufType::kBool).Fill(1, 0), Key(key, GgufType::kBool).Fill(1, 1)};
  }
  return {U32Entry(key, 3)};
}

// An entry that no reader of the type takes.
Bytes WrongEntryOf(const std::string& key, const std::string& type) {
  return type == "string" ? U32Entry(key, 3) : Key(key, GgufType::kString).String("x");
}

// A file with one more entry, in front of the others. A text fills up to the alignment of the data.
Bytes WithEntry(std::span<const std::byte> file, const Bytes& entry) {
  constexpr size_t kHeader = 24;
  constexpr std::string_view kFiller = "general.filler";
  uint64_t counts[2];  // tensors, entries
  std::memcpy(counts, file.data() + 8, sizeof counts);
  const size_t size = entry.size() + 8 + kFiller.size() + 4 + 8;
  const std::string fill((32 - size % 32) % 32, ' ');
  Bytes out = Header(counts[0], counts[1] + 2);
  out.Append(entry).Append(Key(kFiller, GgufType::kString).String(fill));
  return out.Raw(file.data() + kHeader, file.size() - kHeader);
}

const arch::Family& FamilyOf(const GgufFile& file) {
  const auto name = file.GetString("general.architecture").value();
  for (const arch::Family* family : arch::AllFamilies()) {
    if (family->name == name) return *family;
  }
  ADD_FAILURE() << *name;
  return *arch::AllFamilies().front();
}

class UnreadKeys : public testing::Test {
 protected:
  // Puts all keys into the file, one at a time.
  void Sweep(const std::string& path) {
    bytes_ = ReadFile(path);
    const auto file = GgufFile::Parse(bytes_, "model.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    arch_ = FamilyOf(*file).name;
    const auto plain = arch::ReadSpec(*file);
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    ASSERT_THAT(said_.Take(), Not(Contains(HasSubstr("not known here"))));
    families_.insert(arch_);
    for (const auto& [name, type] : LlamaCppKeys()) {
      const bool of_arch = name.starts_with("{arch}.");
      const std::string key = of_arch ? arch_ + name.substr(6) : name;
      if (file->Find(key) != nullptr) continue;
      for (const Bytes& entry : EntriesOf(key, type)) Try(key, entry);
      if (of_arch) TryWrongType(key, WrongEntryOf(key, type));
    }
  }

  // The key is refused by name, or read, or has a row; it is not unknown.
  void Try(const std::string& key, const Bytes& entry) {
    const Bytes with = WithEntry(bytes_, entry);
    const auto file = GgufFile::Parse(with.span(), "model.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto spec = arch::ReadSpec(*file);
    const auto lines = said_.Take();
    if (!spec.ok()) {
      // The message may name another key or a tensor that contradicts this one.
      const std::string& message = spec.error().message;
      EXPECT_THAT(message, AnyOf(HasSubstr(arch_ + "."), HasSubstr(key), HasSubstr("tensor blk.")))
          << key;
      if (message.find("key " + key + " is") != std::string::npos) refused_.insert(key);
      return;
    }
    EXPECT_THAT(lines, Not(Contains(HasSubstr("not known here")))) << arch_;
  }

  // A key that counts as read is really read: with a value of another type the family refuses it.
  void TryWrongType(const std::string& key, const Bytes& entry) {
    const Bytes with = WithEntry(bytes_, entry);
    const auto file = GgufFile::Parse(with.span(), "model.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const arch::Metadata metadata(*file, arch_);
    const auto spec = FamilyOf(*file).read(metadata);
    said_.Take();
    const std::string name = key.substr(arch_.size() + 1);
    if (!metadata.asked().contains(name)) return;
    ASSERT_FALSE(spec.ok()) << key << " is asked for, but has no effect";
    EXPECT_THAT(spec.error().message, HasSubstr(key));
  }

  Said said_;
  std::vector<std::byte> bytes_;
  std::string arch_;
  std::set<std::string> families_;
  std::set<std::string> refused_;
};

TEST_F(UnreadKeys, EveryKeyOfLlamaCppIsReadOrHarmlessOrRefusedInEveryFamily) {
  for (const char* folder : {"", kSeededPairs, kSeededSpeech, kSeededEncoders, kSeededEmbedders}) {
    for (const std::string& name : SeededModelNames(folder)) {
      SCOPED_TRACE(name);
      SeededModel seeded(folder + name);
      const auto path = seeded.Convert();
      ASSERT_TRUE(path.ok()) << path.error().message;
      Sweep(*path);
    }
  }
  for (const char* name : {"gemma2/usual", "gemma3/usual", "qwen3/usual", "qwen2/usual"}) {
    SCOPED_TRACE(name);
    const HfReferenceFolder folder(name);
    const auto path = folder.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    Sweep(*path);
  }
  constexpr std::string_view kIndexed[] = {"deepseek32", "glm-dsa", "minimax-m3", "qwen4exp"};
  for (const arch::Family* family : arch::AllFamilies()) {
    EXPECT_TRUE(families_.contains(std::string(family->name))) << family->name;
    for (const char* key : {"attention.indexer.top_k", "hyper_connection.count", "num_loops"}) {
      const std::string_view name = key;
      const bool has_indexer = std::ranges::find(kIndexed, family->name) != std::end(kIndexed);
      const bool reads_it = (name.starts_with("attention.indexer") && has_indexer) ||
                            (name.starts_with("hyper_connection") && family->name == "qwen4exp");
      if (!reads_it) EXPECT_THAT(refused_, Contains(fmt::format("{}.{}", family->name, key)));
    }
  }
}

// Tables name keys once, and no row hides behind one that stands for a beginning.
TEST(KeyRows, EachIsFoundByItsName) {
  for (const arch::KeyRow& row : arch::AllKeyRows()) {
    EXPECT_EQ(arch::FindKeyRow(row.name), &row) << row.name;
    EXPECT_FALSE(row.text.empty()) << row.name;
  }
}

// ---- Single keys --------------------------------------------------------------------------------

Result<arch::ModelSpec> ReadIgnoring(const std::vector<std::string>& ignored,
                                     const std::function<void(GgufWriter&)>& change) {
  return ReadSpecOf(change, "llama", ignored);
}

TEST(UnreadKey, AttentionToBothSidesMakesAnEmbedder) {
  const auto with = [](const std::string& family, bool causal) {
    const auto spec = ReadSpecOf(
        [&](GgufWriter& writer) { writer.AddBool(family + ".attention.causal", causal); }, family);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return spec.ok() && spec->embedder.has_value() && spec->stacks.empty();
  };
  for (const char* family : {"llama", "qwen3", "gemma"}) {
    EXPECT_FALSE(with(family, true)) << family;
    EXPECT_TRUE(with(family, false)) << family;
  }
  const auto recurrent = SpecMessage(
      [](GgufWriter& writer) { writer.AddBool("mamba.attention.causal", false); }, "mamba");
  EXPECT_NE(recurrent, "accepted");
}

TEST(UnreadKey, PoolingMakesAnEmbedder) {
  const auto with = [](uint32_t pooling) {
    return ReadSpecOf([&](GgufWriter& writer) { writer.AddU32("qwen3.pooling_type", pooling); },
                      "qwen3");
  };
  EXPECT_FALSE(with(0)->embedder.has_value());
  EXPECT_EQ(with(0)->embedding.pooling, Pooling::kNone);
  EXPECT_TRUE(with(3)->embedder.has_value());
  EXPECT_EQ(with(3)->embedding.pooling, Pooling::kLast);
  EXPECT_THAT(with(5).error().message, HasSubstr("key qwen3.pooling_type: expected 0 (none)"));
}

TEST(UnreadKey, AllKeysToIgnoreAreNamedTogether) {
  const auto change = [](GgufWriter& writer) {
    writer.AddU32("llama.dense_9", 1);
    writer.AddF32("llama.attention.clamp_kqv", 2.0f);
    writer.AddString("prism.hadamard.kind", "signed");
  };
  const auto refused = ReadIgnoring({}, change);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(refused.error().message,
              HasSubstr("--ignore-keys dense_9,attention.clamp_kqv,prism.hadamard.kind opens"));
  const auto some = ReadIgnoring({"dense_9", "prism.hadamard.kind"}, change);
  EXPECT_THAT(some.error().message, HasSubstr("key llama.attention.clamp_kqv is 2"));
  const auto all =
      ReadIgnoring({"dense_9", "llama.attention.clamp_kqv", "prism.hadamard.kind"}, change);
  EXPECT_TRUE(all.ok()) << all.error().message;
}

TEST(UnreadKey, KeysThatAreReadCannotBeIgnored) {
  const auto read = ReadIgnoring({"llama.block_count"}, [](GgufWriter&) {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(read.error().message, HasSubstr("--ignore-keys llama.block_count: expected a key"));
  EXPECT_TRUE(ReadIgnoring({"attention.clamp_kqv"}, [](GgufWriter&) {}).ok());
}

TEST(UnreadKey, OneWarningNamesAllUnknownKeys) {
  Said said;
  const auto change = [](GgufWriter& writer) {
    writer.AddU32("llama.zigzag", 1);
    writer.AddF32("llama.attention.twist\n", 2.0f);
    writer.AddU32("other.zigzag", 1);
    writer.AddU32("tokenizer.ggml.zigzag", 1);
    writer.AddU32("llama.vocab_size", 7);
  };
  EXPECT_TRUE(ReadSpecOf(change).ok());
  const auto lines = said.Take();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines.front(), HasSubstr("3 keys are not known here and left out: \"llama.zigzag\", "
                                       "\"llama.attention.twist\\n\", \"tokenizer.ggml.zigzag\""));
  EXPECT_TRUE(ReadIgnoring({"zigzag", "attention.twist\n", "tokenizer.ggml.zigzag"}, change).ok());
  EXPECT_THAT(said.Take(), IsEmpty());
}

// Converters write settings of experts and of YaRN for models that have neither.
TEST(UnreadKey, SettingsOfAbsentPartsAreIdle) {
  Said said;
  EXPECT_EQ(SpecMessage([](GgufWriter& writer) {
              writer.AddU32("llama.expert_count", 0);
              writer.AddU32("llama.expert_used_count", 8);
              writer.AddU32("llama.expert_gating_func", 2);
              writer.AddF32("llama.expert_weights_scale", 2.5f);
              writer.AddF32("llama.rope.scaling.yarn_ext_factor", 0.5f);
              writer.AddF32("llama.rope.scaling.yarn_beta_fast", 16.0f);
              writer.AddF32("llama.attention.layer_norm_epsilon", 1e-6f);
              writer.AddU32("llama.embedding_length_out", 128);
            }),
            "accepted");
  EXPECT_THAT(said.Take(), IsEmpty());
}

TEST(UnreadKey, OneExpertIsAFeedForward) {
  const auto with = [](uint32_t experts) {
    return SpecMessage(
        [&](GgufWriter& writer) {
          writer.AddU32("hunyuan-dense.expert_count", experts);
          writer.AddU32("hunyuan-dense.expert_used_count", 1);
        },
        "hunyuan-dense");
  };
  EXPECT_EQ(with(1), "accepted");
  EXPECT_THAT(with(2), HasSubstr("mixture of experts (2 experts) is not supported"));
}

TEST(UnreadKey, RotaryBaseOfWindowsMayBeThatOfAllLayers) {
  const auto with = [](float base) {
    return SpecMessage([&](GgufWriter& writer) {
      writer.AddU32("llama.attention.sliding_window", 64);
      writer.AddF32("llama.rope.freq_base", 5e5f);
      writer.AddF32("llama.rope.freq_base_swa", base);
    });
  };
  EXPECT_EQ(with(5e5f), "accepted");
  EXPECT_THAT(with(1e4f), HasSubstr("key llama.rope.freq_base_swa is 10000"));
}

// Sections of rotated pairs are all one in a text, but with them pairs are halves apart.
TEST(UnreadKey, RotarySectionsNeedHalves) {
  const auto with = [](const std::string& family) {
    return SpecMessage(
        [&](GgufWriter& writer) {
          writer.AddI32s(family + ".rope.dimension_sections", {2, 3, 3, 0});
        },
        family);
  };
  EXPECT_EQ(with("qwen3"), "accepted");
  EXPECT_THAT(with("llama"), HasSubstr("key llama.rope.dimension_sections is an array of 4 int32"));
}

// As llama.cpp, which rotates halves where both first sections have pairs.
TEST(UnreadKey, Glm4WithRotarySectionsRotatesHalves) {
  const auto style_of = [](const std::vector<int32_t>& sections) {
    const auto spec = ReadSpecOf(
        [&](GgufWriter& writer) {
          if (!sections.empty()) writer.AddI32s("glm4.rope.dimension_sections", sections);
        },
        "glm4");
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return spec->ropes.at(0).style;
  };
  EXPECT_EQ(style_of({}), cpu::RopeStyle::kInterleaved);
  EXPECT_EQ(style_of({8, 12, 12, 0}), cpu::RopeStyle::kHalves);
  EXPECT_EQ(style_of({0, 0, 0, 0}), cpu::RopeStyle::kInterleaved);
  EXPECT_EQ(style_of({32, 0, 0, 0}), cpu::RopeStyle::kInterleaved);
}

TEST(UnreadKey, GraniteMayHaveNoRotation) {
  const auto turned = ReadSpecOf([](GgufWriter&) {}, "granite");
  ASSERT_TRUE(turned.ok()) << turned.error().message;
  EXPECT_EQ(turned->ropes.size(), 1u);
  const auto still = ReadSpecOf(
      [](GgufWriter& writer) {
        writer.AddBool("granite.rope.scaling.finetuned", false);
        writer.AddF32("granite.rope.freq_base", 1e7f);
      },
      "granite");
  ASSERT_TRUE(still.ok()) << still.error().message;
  EXPECT_TRUE(still->ropes.empty());
  EXPECT_EQ(AttentionOf(*still, 0).rope, arch::Attention::kNoRope);
}

// OLMo 3's folder says attention_factor 1.2079441541679836 for a stretch of 8: YaRN's own.
TEST(UnreadKey, YarnMayHaveAnAmplitudeOfItsOwn) {
  const auto amplitude = [](float given) {
    const auto spec = ReadSpecOf([&](GgufWriter& writer) {
      writer.AddString("llama.rope.scaling.type", "yarn");
      writer.AddF32("llama.rope.scaling.factor", 8.0f);
      if (given > 0) writer.AddF32("llama.rope.scaling.yarn_attn_factor", given);
    });
    return spec.ok() ? spec->ropes.front().amplitude : 0.0f;
  };
  EXPECT_FLOAT_EQ(amplitude(0), 1.2079441541679836f);
  EXPECT_FLOAT_EQ(amplitude(1.2079441541679836f), 1.2079441541679836f);
  EXPECT_FLOAT_EQ(amplitude(1.0f), 1.0f);
}

}  // namespace
}  // namespace kvant::test
