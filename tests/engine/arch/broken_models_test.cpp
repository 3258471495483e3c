// Files of every family in which one tensor is absent or has a row too many: one error that names
// the tensor, and no model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using testing::HasSubstr;

enum class Break : uint8_t { kLeaveOut, kAddRow };

// "blk.3.attn_q.weight" is attn_q.weight, and "dec.blk.3.attn_q.weight" that of a decoder,
// dec.attn_q.weight: one layer stands for all of a stack with such a tensor.
std::string KindOf(std::string_view name) {
  std::string_view kind = name;
  for (const std::string_view stack : {"enc.", "dec."}) {
    if (!kind.starts_with(stack)) continue;
    const std::string within = KindOf(kind.substr(stack.size()));
    return std::string(stack) + within;
  }
  if (!kind.starts_with("blk.")) return std::string(kind);
  kind.remove_prefix(4);
  while (!kind.empty() && std::isdigit(static_cast<unsigned char>(kind.front())) != 0) {
    kind.remove_prefix(1);
  }
  return std::string(kind.substr(1));
}

// A copy of the file in which `broken` is as it should not be.
void WriteBroken(const GgufFile& file, const GgufTensor& broken, Break how,
                 const std::string& path) {
  formats::GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.AddValue(std::string(key), value);
  std::vector<std::vector<std::byte>> contents;
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.size_bytes);
    GgufTensor copy = tensor;
    if (tensor.name == broken.name) {
      if (how == Break::kLeaveOut) continue;
      const size_t slice =
          bytes.size() / static_cast<size_t>(tensor.dims[std::max(0, tensor.n_dims - 1)]);
      bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(slice));
      ++copy.dims[std::max(0, tensor.n_dims - 1)];
      copy.n_dims = std::max(1, tensor.n_dims);
      copy.size_bytes = bytes.size();
    }
    ASSERT_TRUE(writer.AddTensor(copy).ok());
    contents.push_back(std::move(bytes));
  }
  ASSERT_TRUE(writer.Begin(path).ok());
  for (const auto& bytes : contents) ASSERT_TRUE(writer.WriteTensor(bytes).ok());
  ASSERT_TRUE(writer.Finish().ok());
}

// Whether a model of the family may lack the tensor.
bool IsOptional(std::string_view model, const std::string& kind) {
  // Some models have one norm before both sublayers.
  if (model.starts_with("falcon") && kind == "attn_norm_2.weight") return true;
  if ((model.starts_with("stablelm") || model.starts_with("falcon")) && kind == "ffn_norm.weight") {
    return true;
  }
  // The output is the embedding.
  if (model == "codeshell" && kind == "token_embd.weight") return true;
  // Values may be the keys.
  if (model.starts_with("gemma4") && kind == "attn_v.weight") return true;
  // Nothing reads these tensors in the first layer.
  if (model.starts_with("rwkv7") && kind.starts_with("time_mix_v") &&
      kind != "time_mix_value.weight") {
    return true;
  }
  static const std::set<std::string> kOptional = {"attn_q_norm.weight",
                                                  "attn_k_norm.weight",
                                                  "output.weight",
                                                  "rope_freqs.weight",
                                                  "rope_factors_long.weight",
                                                  "rope_factors_short.weight",
                                                  "ssm_norm.weight",
                                                  "layer_output_scale.weight",
                                                  "altup_correct_scale.weight",
                                                  "ffn_down_exps.scale",
                                                  "exp_probs_b"};
  return kind.ends_with(".bias") || kOptional.contains(kind);
}

// Whether the model takes a size from the tensor's number of rows: that of the vocabulary, or that
// of the learned positions.
bool CountsRows(std::string_view model, std::string_view kind) {
  // The positions of an encoder that reads frames follow from how many of these there are.
  if (kind == "enc.position_embd.weight") return !model.starts_with(kSeededSpeech);
  // The table of n-grams may end with rows that no head has.
  if (kind == "per_layer_token_embd.weight") return model.starts_with("qwen4exp");
  return kind == "token_embd.weight" || kind == "position_embd.weight" ||
         kind == "dec.position_embd.weight";
}

// The names by which an error may call an absent tensor, those of other forms of its matrices
// included.
std::vector<std::string> NamesOf(const std::string& kind) {
  std::vector<std::string> names = {kind.substr(0, kind.find(".weight"))};
  for (const std::string_view stack : {"enc.", "dec."}) {
    // The layer's number stands between.
    if (names.front().starts_with(stack)) names.front().erase(0, stack.size());
  }
  const std::vector<std::vector<std::string>> alternatives = {
      {"attn_q", "attn_k", "attn_v", "attn_qkv"},
      {"ffn_gate", "ffn_up"},
      {"ffn_gate_inp", "ffn_gate", "feed_forward_length"},  // a layer without experts
      {"ffn_gate_shexp", "ffn_up_shexp"},
      {"token_embd", "output"},
      {"laurel_l", "laurel_r"},
      {"ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"},
      {"attn_kv_b", "attn_k_b", "attn_v_b"},
      {"ssm_ba", "ssm_alpha", "ssm_beta"}};
  for (const auto& forms : alternatives) {
    if (std::ranges::find(forms, names.front()) == forms.end()) continue;
    names.insert(names.end(), forms.begin(), forms.end());
  }
  return names;
}

class BrokenModels : public testing::TestWithParam<std::string> {};

std::vector<std::string> AllSeededModels() {
  std::vector<std::string> all = SeededModelNames();
  for (const std::string folder : {kSeededPairs, kSeededSpeech, kSeededEncoders}) {
    for (const std::string& name : SeededModelNames(folder)) all.push_back(folder + name);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Reference, BrokenModels, testing::ValuesIn(AllSeededModels()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST_P(BrokenModels, ATensorThatIsAbsentOrTooLongIsNamed) {
  SeededModel seeded(GetParam());
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = GgufFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const TemporaryFolder folder;
  const std::string broken = folder / "broken.gguf";
  std::set<std::string> seen;
  size_t refused = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    const std::string kind = KindOf(tensor.name);
    if (!seen.insert(kind).second) continue;
    for (const Break how : {Break::kLeaveOut, Break::kAddRow}) {
      SCOPED_TRACE(std::string(tensor.name) + (how == Break::kLeaveOut ? " left out" : " longer"));
      WriteBroken(*file, tensor, how, broken);
      const auto model = Model::Open(broken);
      if (model.ok()) {
        EXPECT_TRUE(how == Break::kLeaveOut ? IsOptional(GetParam(), kind)
                                            : CountsRows(GetParam(), kind));
        continue;
      }
      ++refused;
      const std::string& message = model.error().message;
      EXPECT_THAT(message, HasSubstr(broken));
      EXPECT_EQ(message.find('\n'), std::string::npos);
      const auto names = NamesOf(kind);
      EXPECT_TRUE(std::ranges::any_of(names, [&](const std::string& name) {
        return message.find(name) != std::string::npos;
      })) << message;
    }
  }
  EXPECT_GE(refused, seen.size());
}

}  // namespace
}  // namespace kvant::test
