// Random-weight models that the tests write themselves, through the project's own GGUF writer: any
// shape, type and window, with a vocabulary of bytes. Models of llama and phi3 are checked against
// a double-precision forward pass. Models of gemma3 have layers with and without a window, and
// gemma3_test.cpp compares that family with another program.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "quant/format.h"

namespace kvant::test {

// A mixture of experts in every layer, each as wide as the shape's feed-forward.
struct TinyExperts {
  int64_t count = 0;  // 0: none
  int64_t used = 2;
  bool selection_bias = false;
  bool biases = false;  // of the router and of the experts
  bool fused = false;   // gate and up in one tensor
};

// Latent attention, of the architecture deepseek2: the shape's head_dim is that of its heads.
struct TinyLatent {
  int64_t latent = 0;  // 0: none
  int64_t rope = 8;    // rotated dimensions of a head
  int64_t v_dim = 16;
  int64_t q_rank = 0;     // 0: queries in one step
  bool together = false;  // one matrix for keys and values, as in older files
  bool both = false;      // that, and those of heads, too
};

// An indexer in every layer, of the architectures deepseek32 and minimax-m3.
struct TinyIndex {
  int64_t top_k = 0;  // 0: none
  int64_t heads = 3;
  int64_t dim = 16;
  int64_t block = 0;  // positions of a block, of minimax-m3
};

struct TinyShape {
  std::string arch = "llama";
  int64_t dim = 64;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 16;
  int64_t ffn = 96;
  int64_t layers = 2;
  int64_t window = 0;
  int64_t pattern = 0;  // of gemma3: every so many-th layer has no window; 0 = the key is absent
  int64_t context = 512;
  bool tied = false;
  std::string type = "F32";  // of the matrices
  uint32_t seed = 1;
  TinyExperts experts = {};
  TinyLatent latent = {};
  TinyIndex index = {};
  float epsilon = 1e-5f;
  std::map<std::string, uint32_t> extra = {};  // metadata, instead of or beside what follows
};

// Layers with this window alternate with layers that see all positions.
inline TinyShape MixedShape(int64_t window) {
  TinyShape shape;
  shape.arch = "gemma3";
  shape.window = window;
  shape.pattern = 2;
  shape.layers = 4;
  return shape;
}

// Latent attention whose sizes make the absorbed form the cheaper one at any length. So passes of
// many tokens compute it in the same form as passes of few tokens, with the same arithmetic.
inline TinyShape LatentShape() {
  TinyShape shape;
  shape.arch = "deepseek2";
  shape.head_dim = 24;
  shape.latent = {.latent = 16, .v_dim = 32};
  return shape;
}

// That, with rows that see the `top_k` positions that an indexer chooses.
inline TinyShape IndexedShape(int64_t top_k) {
  TinyShape shape = LatentShape();
  shape.arch = "deepseek32";
  shape.latent.q_rank = 20;
  shape.index.top_k = top_k;
  return shape;
}

// Rows see `top_k` blocks of 16 positions, chosen for each kv head.
inline TinyShape BlockShape(int64_t top_k) {
  TinyShape shape;
  shape.arch = "minimax-m3";
  shape.index = {.top_k = top_k, .heads = shape.kv_heads, .block = 16};
  return shape;
}

inline constexpr int64_t kTinyVocab = 3 + 256;

// Row-major [rows][cols] random values, standard deviation `scale`.
inline std::vector<float> RandomValues(int64_t count, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A file whose tensors are encoded one after the other and written at the end. An error fails the
// test.
class TensorFileWriter {
 protected:
  static void Expect(const Status& status) { ASSERT_TRUE(status.ok()) << status.error().message; }

  void Add(const std::string& name, const std::string& type, const std::vector<int64_t>& dims,
           const std::vector<float>& values) {
    const quant::FormatTraits* format = quant::FindFormat(type);
    ASSERT_NE(format, nullptr) << type;
    Expect(writer_.AddTensor(name, *format, dims));
    std::vector<std::byte> bytes(static_cast<size_t>(
        format->row_bytes(dims[0]) * (static_cast<int64_t>(values.size()) / dims[0])));
    format->encode(values.data(), nullptr, bytes.data(), static_cast<int64_t>(values.size()));
    data_.push_back(std::move(bytes));
  }

  void WriteFile(const std::string& path) {
    Expect(writer_.Begin(path));
    for (const std::vector<std::byte>& bytes : data_) Expect(writer_.WriteTensor(bytes));
    Expect(writer_.Finish());
  }

  formats::GgufWriter writer_;

 private:
  std::vector<std::vector<std::byte>> data_;
};

class TinyModelWriter : TensorFileWriter {
 public:
  explicit TinyModelWriter(const TinyShape& shape) : shape_(shape), random_(shape.seed) {}

  // Writes the file; fails the test on an error.
  void Write(const std::string& path) {
    AddMetadata();
    AddMatrix("token_embd.weight", shape_.dim, kTinyVocab, 1.0f);
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      AddLayer("blk." + std::to_string(layer) + ".");
    }
    AddVector("output_norm.weight", shape_.dim);
    if (!shape_.tied) AddMatrix("output.weight", shape_.dim, kTinyVocab);
    WriteFile(path);
  }

 private:
  void AddLayer(const std::string& prefix) {
    const int64_t q_rows = shape_.heads * shape_.head_dim;
    const int64_t kv_rows = shape_.kv_heads * shape_.head_dim;
    const bool fused = shape_.arch == "phi3";
    const bool many_norms = shape_.arch == "gemma3";
    AddVector(prefix + "attn_norm.weight", shape_.dim);
    if (shape_.latent.latent > 0) {
      AddLatent(prefix);
    } else if (fused) {
      AddMatrix(prefix + "attn_qkv.weight", shape_.dim, q_rows + 2 * kv_rows);
    } else {
      AddMatrix(prefix + "attn_q.weight", shape_.dim, q_rows);
      AddMatrix(prefix + "attn_k.weight", shape_.dim, kv_rows);
      AddMatrix(prefix + "attn_v.weight", shape_.dim, kv_rows);
    }
    if (shape_.index.top_k > 0) AddIndexer(prefix);
    if (many_norms || shape_.arch == "dots1" || shape_.arch == "minimax-m3") {
      AddVector(prefix + "attn_q_norm.weight", shape_.head_dim);
      AddVector(prefix + "attn_k_norm.weight", shape_.head_dim);
    }
    const int64_t out_cols = shape_.latent.latent > 0 ? shape_.heads * shape_.latent.v_dim : q_rows;
    AddMatrix(prefix + "attn_output.weight", out_cols, shape_.dim);
    if (many_norms) AddVector(prefix + "post_attention_norm.weight", shape_.dim);
    AddVector(prefix + "ffn_norm.weight", shape_.dim);
    if (shape_.experts.count > 0) return AddExperts(prefix);
    if (fused) {
      AddMatrix(prefix + "ffn_up.weight", shape_.dim, 2 * shape_.ffn);
    } else {
      AddMatrix(prefix + "ffn_gate.weight", shape_.dim, shape_.ffn);
      AddMatrix(prefix + "ffn_up.weight", shape_.dim, shape_.ffn);
    }
    AddMatrix(prefix + "ffn_down.weight", shape_.ffn, shape_.dim);
    if (many_norms) AddVector(prefix + "post_ffw_norm.weight", shape_.dim);
  }

  void AddLatent(const std::string& prefix) {
    const TinyLatent& latent = shape_.latent;
    const int64_t nope = shape_.head_dim - latent.rope;
    const int64_t q_rows = shape_.heads * shape_.head_dim;
    if (latent.q_rank > 0) {
      AddMatrix(prefix + "attn_q_a.weight", shape_.dim, latent.q_rank);
      AddVector(prefix + "attn_q_a_norm.weight", latent.q_rank);
      AddMatrix(prefix + "attn_q_b.weight", latent.q_rank, q_rows);
    } else {
      AddMatrix(prefix + "attn_q.weight", shape_.dim, q_rows);
    }
    AddMatrix(prefix + "attn_kv_a_mqa.weight", shape_.dim, latent.latent + latent.rope);
    AddVector(prefix + "attn_kv_a_norm.weight", latent.latent);
    // The rows of keys, then of values of each head; the matrices of heads hold these values.
    const int64_t r = latent.latent;
    const int64_t head_rows = nope + latent.v_dim;
    const std::vector<float> kv = RandomValues(r * shape_.heads * head_rows,
                                               1.5f / std::sqrt(static_cast<float>(r)), random_);
    if (latent.together || latent.both) {
      Add(prefix + "attn_kv_b.weight", shape_.type, {r, shape_.heads * head_rows}, kv);
    }
    if (latent.together) return;
    std::vector<float> keys;
    std::vector<float> values;
    for (int64_t head = 0; head < shape_.heads; ++head) {
      const float* rows = kv.data() + head * head_rows * r;
      for (int64_t i = 0; i < r; ++i) {
        for (int64_t d = 0; d < nope; ++d) keys.push_back(rows[d * r + i]);
      }
      values.insert(values.end(), rows + nope * r, rows + head_rows * r);
    }
    Add(prefix + "attn_k_b.weight", shape_.type, {nope, r, shape_.heads}, keys);
    Add(prefix + "attn_v_b.weight", shape_.type, {r, latent.v_dim, shape_.heads}, values);
  }

  void AddIndexer(const std::string& prefix) {
    const TinyIndex& index = shape_.index;
    const int64_t q_rows = index.heads * index.dim;
    AddVector(prefix + "indexer.k_norm.weight", index.dim);
    if (index.block > 0) {
      AddVector(prefix + "indexer.q_norm.weight", index.dim);
      AddMatrix(prefix + "indexer.q_proj.weight", shape_.dim, q_rows);
      AddMatrix(prefix + "indexer.k_proj.weight", shape_.dim, index.dim);
      return;
    }
    Add(prefix + "indexer.k_norm.bias", "F32", {index.dim}, RandomValues(index.dim, 0.3f, random_));
    AddMatrix(prefix + "indexer.attn_q_b.weight", std::max<int64_t>(1, shape_.latent.q_rank),
              q_rows);
    AddMatrix(prefix + "indexer.attn_k.weight", shape_.dim, index.dim);
    AddMatrix(prefix + "indexer.proj.weight", shape_.dim, index.heads);
  }

  void AddExperts(const std::string& prefix) {
    const int64_t count = shape_.experts.count;
    const float scale = 1.5f / std::sqrt(static_cast<float>(shape_.dim));
    Add(prefix + "ffn_gate_inp.weight", "F32", {shape_.dim, count},
        RandomValues(shape_.dim * count, scale, random_));
    if (shape_.experts.selection_bias) {
      Add(prefix + "exp_probs_b.bias", "F32", {count}, RandomValues(count, 0.3f, random_));
    }
    if (shape_.experts.biases) {
      Add(prefix + "ffn_gate_inp.bias", "F32", {count}, RandomValues(count, 0.5f, random_));
    }
    const auto add = [&](const std::string& name, int64_t cols, int64_t rows) {
      const float deviation = 1.5f / std::sqrt(static_cast<float>(cols));
      Add(prefix + name + ".weight", shape_.type, {cols, rows, count},
          RandomValues(cols * rows * count, deviation, random_));
      if (!shape_.experts.biases) return;
      Add(prefix + name + ".bias", "F32", {rows, count}, RandomValues(rows * count, 0.5f, random_));
    };
    if (shape_.experts.fused) {
      add("ffn_gate_up_exps", shape_.dim, 2 * shape_.ffn);
    } else {
      add("ffn_gate_exps", shape_.dim, shape_.ffn);
      add("ffn_up_exps", shape_.dim, shape_.ffn);
    }
    add("ffn_down_exps", shape_.ffn, shape_.dim);
  }

  void AddMetadata() {
    const auto key = [this](const char* name) { return shape_.arch + "." + name; };
    const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
    writer_.AddString("general.architecture", shape_.arch);
    writer_.AddU32(key("context_length"), u32(shape_.context));
    writer_.AddU32(key("embedding_length"), u32(shape_.dim));
    writer_.AddU32(key("block_count"), u32(shape_.layers));
    writer_.AddU32(key("feed_forward_length"), u32(shape_.ffn));
    std::map<std::string, uint32_t> numbers = shape_.extra;
    if (shape_.experts.count > 0) {
      numbers.try_emplace("expert_count", u32(shape_.experts.count));
      numbers.try_emplace("expert_used_count", u32(shape_.experts.used));
    }
    if (shape_.latent.latent > 0) AddLatentNumbers(numbers);
    if (shape_.index.top_k > 0) AddIndexNumbers(numbers);
    for (const auto& [name, value] : numbers) writer_.AddU32(key(name.c_str()), value);
    writer_.AddU32(key("attention.head_count"), u32(shape_.heads));
    writer_.AddU32(key("attention.head_count_kv"), u32(shape_.kv_heads));
    if (shape_.latent.latent == 0) {
      writer_.AddU32(key("attention.key_length"), u32(shape_.head_dim));
      writer_.AddU32(key("attention.value_length"), u32(shape_.head_dim));
      writer_.AddU32(key("rope.dimension_count"), u32(shape_.head_dim));
    }
    writer_.AddF32(key("attention.layer_norm_rms_epsilon"), shape_.epsilon);
    if (shape_.window > 0) writer_.AddU32(key("attention.sliding_window"), u32(shape_.window));
    if (shape_.pattern > 0) {
      writer_.AddU32(key("attention.sliding_window_pattern"), u32(shape_.pattern));
      // Two rotary bases, so that it shows if a layer takes the other kind's. Llama 4 has one.
      writer_.AddF32(key("rope.freq_base"), 30000.0f);
      if (shape_.arch != "llama4") writer_.AddF32(key("rope.freq_base_swa"), 300.0f);
    }
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    writer_.AddString("tokenizer.ggml.model", "llama");
    writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    writer_.AddF32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
    writer_.AddI32s("tokenizer.ggml.token_type", types);
    writer_.AddU32("tokenizer.ggml.bos_token_id", 1);
    writer_.AddU32("tokenizer.ggml.eos_token_id", 2);
  }

  void AddIndexNumbers(std::map<std::string, uint32_t>& numbers) const {
    const auto add = [&numbers](const std::string& name, int64_t value) {
      numbers.try_emplace("attention.indexer." + name, static_cast<uint32_t>(value));
    };
    add("head_count", shape_.index.heads);
    add("key_length", shape_.index.dim);
    add("top_k", shape_.index.top_k);
    if (shape_.index.block == 0) return;
    add("block_size", shape_.index.block);
    add("local_blocks", 1);
  }

  void AddLatentNumbers(std::map<std::string, uint32_t>& numbers) const {
    const TinyLatent& latent = shape_.latent;
    const auto add = [&numbers](const std::string& name, int64_t value) {
      numbers.try_emplace(name, static_cast<uint32_t>(value));
    };
    const std::string suffix = latent.together ? "" : "_mla";
    add("attention.kv_lora_rank", latent.latent);
    if (latent.q_rank > 0) add("attention.q_lora_rank", latent.q_rank);
    add("attention.key_length" + suffix, shape_.head_dim);
    add("attention.value_length" + suffix, latent.v_dim);
    add("rope.dimension_count", latent.rope);
  }

  void AddVector(const std::string& name, int64_t size) {
    std::vector<float> values = RandomValues(size, 0.1f, random_);
    for (float& value : values) value += 1.0f;
    Add(name, "F32", std::vector<int64_t>{size}, values);
  }

  // Scaled so that activations keep their size and logits spread over a few units.
  void AddMatrix(const std::string& name, int64_t cols, int64_t rows, float gain = 1.5f) {
    const float scale =
        name == "token_embd.weight" ? gain : gain / std::sqrt(static_cast<float>(cols));
    Add(name, shape_.type, {cols, rows}, RandomValues(cols * rows, scale, random_));
  }

  TinyShape shape_;
  std::mt19937 random_;
};

// A path in the test's temporary folder.
inline std::string TempPath(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string prefix =
      info != nullptr ? std::string(info->test_suite_name()) + "." + info->name() : "test";
  for (char& c : prefix) {
    if (c == '/') c = '_';
  }
  return (std::filesystem::temp_directory_path() /
          (prefix + "." + std::to_string(getpid()) + "." + name))
      .string();
}

// Writes, opens and deletes a tiny model (the mapping stays valid).
inline std::shared_ptr<const Model> OpenTiny(const TinyShape& shape,
                                             const ModelOptions& options = {}) {
  const std::string path = TempPath("tiny.gguf");
  TinyModelWriter(shape).Write(path);
  auto model = Model::Open(path, options);
  std::filesystem::remove(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

inline std::unique_ptr<Session> OpenSession(std::shared_ptr<const Model> model,
                                            const SessionOptions& options = {}) {
  auto session = Session::Create(std::move(model), options);
  EXPECT_TRUE(session.ok()) << session.error().message;
  return session.ok() ? std::move(*session) : nullptr;
}

// Logits of all tokens, processed in calls of `piece` tokens.
inline std::vector<float> AllLogits(Session& session, std::span<const TokenId> tokens,
                                    size_t piece) {
  std::vector<float> all;
  for (size_t begin = 0; begin < tokens.size(); begin += piece) {
    const auto part = tokens.subspan(begin, std::min(piece, tokens.size() - begin));
    const Status status = session.AppendAll(part, [&all](std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  return all;
}

inline std::vector<TokenId> RandomTokens(size_t count, uint32_t seed, int32_t vocab = kTinyVocab) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

inline double MaxDifference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN counts as different
  }
  return largest;
}

}  // namespace kvant::test
