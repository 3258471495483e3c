// Fuzzes what follows from the metadata of a model: whatever they and the shapes of the tensors
// are, the families must refuse them in one clean line or make a plan whose sizes are sane.
//
// The input is text, a line for each key and tensor; what it says becomes a GGUF file in memory. A
// key that begins with a point is one of the architecture, which stands before it.
//   u KEY NUMBER, f KEY NUMBER, s KEY TEXT, b KEY NUMBER     a value: 32-bit, float, text, boolean
//   i KEY NUMBER ..., o KEY NUMBER ..., r KEY NUMBER ...     an array: 32-bit integers, booleans,
//                                                            floats
//   t NAME TYPE SIZE ...                                     a tensor
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/table.h"
#include "engine/arch/build_plan.h"
#include "engine/arch/embedding_head.h"
#include "engine/arch/spec.h"
#include "engine/limits.h"
#include "formats/gguf.h"
#include "quant/format.h"
#include "tests/engine/arch/attentions.h"

namespace {

using namespace kvant;

constexpr size_t kAlignment = 32;
constexpr uint64_t kTensorBytesMax = 4 << 20;  // of all tensors
// Bytes of tensors: floats of 0.75, so that factors and norms are positive.
constexpr uint8_t kData = 0x3f;

// Numbers of types in files.
enum : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

void Require(bool promise) {
  if (!promise) __builtin_trap();
}

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PutText(std::string& out, const std::string& text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

class File {
 public:
  void Add(const std::string& line) {
    std::istringstream in(line);
    std::string kind;
    std::string name;
    if (!(in >> kind >> name)) return;
    if (name.front() == '.') name = arch_ + name;
    if (!names_.insert(name).second) return;
    if (kind == "t") return AddTensor(name, in);
    std::string value;
    if (kind == "u") {
      Put(value, kU32);
      Put(value, static_cast<uint32_t>(Number(in)));
    } else if (kind == "f") {
      Put(value, kF32);
      Put(value, static_cast<float>(Float(in)));
    } else if (kind == "b") {
      Put(value, kBool);
      Put(value, static_cast<uint8_t>(Number(in) & 1));
    } else if (kind == "s") {
      std::string text;
      in >> text;
      if (name == "general.architecture") arch_ = text;
      Put(value, kString);
      PutText(value, text);
    } else if (kind == "i" || kind == "o") {
      PutArray(kind == "i", in, value);
    } else if (kind == "r") {
      std::string numbers;
      uint64_t count = 0;
      for (double number = 0; in >> number; ++count) Put(numbers, static_cast<float>(number));
      Put(value, kArray);
      Put(value, kF32);
      Put(value, count);
      value += numbers;
    } else {
      return;
    }
    PutText(keys_, name);
    keys_ += value;
    ++key_count_;
  }

  std::string Bytes() const {
    std::string out = "GGUF";
    Put<uint32_t>(out, 3);
    Put(out, tensor_count_);
    Put(out, key_count_);
    out += keys_ + tensors_;
    out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment);
    out.append(data_bytes_, static_cast<char>(kData));
    return out;
  }

  uint64_t data_bytes() const { return data_bytes_; }

 private:
  static uint64_t Number(std::istringstream& in) {
    uint64_t number = 0;
    in >> number;
    return number;
  }
  static double Float(std::istringstream& in) {
    double number = 0;
    in >> number;
    return number;
  }

  static void PutArray(bool integers, std::istringstream& in, std::string& value) {
    std::vector<uint64_t> numbers;
    for (uint64_t number = 0; in >> number;) numbers.push_back(number);
    Put(value, kArray);
    Put(value, integers ? kI32 : kBool);
    Put<uint64_t>(value, numbers.size());
    for (const uint64_t number : numbers) {
      integers ? Put(value, static_cast<uint32_t>(number))
               : Put(value, static_cast<uint8_t>(number & 1));
    }
  }

  void AddTensor(const std::string& name, std::istringstream& in) {
    std::string type;
    in >> type;
    const quant::FormatTraits* format = quant::FindFormat(type);
    std::vector<uint64_t> dims;
    for (uint64_t size = 0; dims.size() < 4 && in >> size;) dims.push_back(size);
    if (format == nullptr || dims.empty()) return;
    uint64_t rows = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0 || dims[i] > kTensorBytesMax || rows > kTensorBytesMax) return;
      if (i > 0) rows *= dims[i];
    }
    if (dims[0] % static_cast<uint64_t>(format->block_values) != 0) return;
    const auto row_bytes = static_cast<uint64_t>(format->row_bytes(static_cast<int64_t>(dims[0])));
    if (rows > kTensorBytesMax || data_bytes_ + rows * row_bytes > kTensorBytesMax) return;
    PutText(tensors_, name);
    Put(tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) Put(tensors_, size);
    Put(tensors_, static_cast<uint32_t>(format->type));
    Put(tensors_, data_bytes_);
    data_bytes_ += (rows * row_bytes + kAlignment - 1) / kAlignment * kAlignment;
    ++tensor_count_;
  }

  std::string arch_;
  std::set<std::string> names_;
  std::string keys_;
  std::string tensors_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t data_bytes_ = 0;
};

void CheckMessage(const Error& error) {
  Require(error.message.starts_with("fuzz: ") && error.message.size() < 4000);
  Require(error.message.find('\n') == std::string::npos);
}

void CheckStack(const arch::ModelSpec& spec, const arch::Stack& stack) {
  Require(stack.dim >= 1 && stack.dim <= int64_t{kDimMax});
  Require(!stack.layers.empty() && std::ssize(stack.layers) <= int64_t{kLayersMax});
  for (const arch::Attention* attention : test::Attentions(stack)) {
    Require(attention->heads % attention->kv_heads == 0);
    Require(attention->k_dim >= 1 && attention->k_dim <= int64_t{kHeadDimMax});
    Require(attention->rope == arch::Attention::kNoRope || attention->rope < spec.ropes.size());
    Require(attention->bias_slopes.empty() ||
            std::ssize(attention->bias_slopes) == attention->heads);
  }
}

void CheckSpec(const arch::ModelSpec& spec) {
  Require(!spec.stacks.empty() || spec.encoder.has_value() || spec.embedder.has_value());
  Require(!spec.embedder.has_value() || (spec.stacks.empty() && !spec.encoder.has_value()));
  if (spec.embedder.has_value()) CheckStack(spec, *spec.embedder);
  for (const arch::Stack& stack : spec.stacks) CheckStack(spec, stack);
  for (const graph::RopeSpec& rope : spec.ropes) Require(rope.n_rot >= 2 && rope.n_rot % 2 == 0);
  if (!spec.encoder.has_value()) return;
  CheckStack(spec, spec.encoder->stack);
  Require(spec.encoder->source_max >= 1 && spec.encoder->source_max <= int64_t{kContextMax});
  if (spec.encoder->frames.has_value()) Require(spec.encoder->frames->bins >= 1);
}

// The cache layers that hold rows of positions: those of attentions with keys of their own, and of
// those over a source.
int64_t CountLayersOfRows(const arch::Stack& stack) {
  int64_t count = 0;
  for (const arch::LayerSpec& layer : stack.layers) {
    for (const arch::Sublayer& sublayer : layer.sublayers) {
      const auto* attention = std::get_if<arch::Attention>(&sublayer.block);
      const bool own_keys = attention != nullptr && !attention->keys_of.has_value();
      const bool latent = std::holds_alternative<arch::LatentAttention>(sublayer.block);
      const bool cross = std::holds_alternative<arch::CrossAttention>(sublayer.block);
      count += own_keys || latent || cross ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cpu::KernelTable& kernels = *cpu::ChooseKernels("scalar").value();
  static const cpu::FloatGemm& gemm = *cpu::ChooseFloatGemm("own").value();
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  File content;
  for (std::string line; std::getline(lines, line);) content.Add(line);
  // A buffer of its own, as aligned as a mapping is.
  const std::string text = content.Bytes();
  std::vector<std::max_align_t> buffer(text.size() / sizeof(std::max_align_t) + 1);
  std::memcpy(buffer.data(), text.data(), text.size());
  const auto file =
      formats::GgufFile::Parse(std::as_bytes(std::span(buffer)).first(text.size()), "fuzz");
  if (!file.ok()) {
    CheckMessage(file.error());
    return 0;
  }
  auto spec = arch::ReadSpec(*file);
  if (!spec.ok()) {
    CheckMessage(spec.error());
    return 0;
  }
  CheckSpec(*spec);
  const auto plan = arch::BuildPlan(*file, kernels, gemm, *spec);
  if (!plan.ok()) {
    CheckMessage(plan.error());
    return 0;
  }
  const int64_t of_rows = std::ranges::count_if(
      (*plan)->cache_layers(), [](const auto& layer) { return layer.state_floats == 0; });
  Require(of_rows == (spec->stacks.empty() ? 0 : CountLayersOfRows(spec->stacks.front())));
  Require(((*plan)->Layout(3).bytes > 0) == !spec->stacks.empty());
  if (spec->embedder.has_value()) {
    const bool ranks = spec->embedding.pooling == Pooling::kRank && arch::HasClassifier(*file);
    const auto embed =
        arch::BuildEmbedPlan(*file, kernels, gemm, *spec, ranks ? Pooling::kRank : Pooling::kMean);
    if (!embed.ok()) CheckMessage(embed.error());
  }
  if (!spec->encoder.has_value()) return 0;
  const auto encode = arch::BuildEncodePlan(*file, kernels, gemm, *spec, **plan);
  if (!encode.ok()) {
    CheckMessage(encode.error());
    return 0;
  }
  Require((*encode)->Layout(3).bytes > 0);
  return 0;
}
