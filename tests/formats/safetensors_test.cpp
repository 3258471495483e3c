// The safetensors reader: a correct file, and one clear error for everything that is wrong with
// one.
#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/formats/safetensors_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::SafetensorsModel;
using testing::HasSubstr;
using testing::StartsWith;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string Message(const std::string& file) {
  const auto model = SafetensorsModel::Parse(Bytes(file), "m.safetensors");
  return model.ok() ? "accepted" : model.error().message;
}

// A header around 8 bytes of data.
std::string MessageOf(const std::string& header) {
  return Message(SafetensorsBytes(header, "12345678"));
}

// One tensor "t" with these fields.
std::string MessageOfTensor(const std::string& fields) {
  return MessageOf("{\"t\":{" + fields + "}}");
}

TEST(Safetensors, ReadsTensorsWhereTheyLie) {
  const std::string file = SafetensorsBuilder()
                               .Add("odd", "U8", {3}, "abc")
                               .AddF32("matrix", {2, 2}, {1, 2, 3, 4})
                               .Add("scalar", "BF16", {}, "xy")
                               .Add("nothing", "I64", {4, 0}, "")
                               .Bytes();
  const auto model = SafetensorsModel::Parse(Bytes(file), "m");
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors().size(), 4u);
  const auto* matrix = model->Find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->type->name, "F32");
  EXPECT_EQ(matrix->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(matrix->n_values(), 4);
  float values[4];
  std::memcpy(values, matrix->data, sizeof(values));
  EXPECT_THAT(values, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(model->Find("scalar")->size_bytes, 2u);
  EXPECT_EQ(model->Find("nothing")->size_bytes, 0u);
  EXPECT_EQ(model->Find("matri"), nullptr);
}

TEST(Safetensors, ReadsATrainedModel) {
  const std::string path = SharedPath("models/tinystories-656k");
  KVANT_SKIP_WITHOUT(path);
  const auto model = SafetensorsModel::OpenFolder(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 20u);
  EXPECT_EQ(model->Find("lm_head.weight")->shape, (std::vector<int64_t>{2048, 128}));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = SafetensorsBuilder().AddF32("t", {2}, {1, 2}).Bytes();
  ASSERT_EQ(Message(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(Message(file.substr(0, size)), StartsWith("m.safetensors: ")) << size;
  }
  EXPECT_THAT(Message(file + "x"), HasSubstr("belong to no tensor"));
}

// The reference implementation (safetensors 0.8.0) reads all of it.
TEST(Safetensors, ReadsWhatTheReferenceReads) {
  const std::string tensor = R"("t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(MessageOf(R"({"__metadata__":null,)" + tensor + "}"), "accepted");
  EXPECT_THAT(MessageOf(R"({"__metadata__":[],)" + tensor + "}"), HasSubstr("no object"));
  EXPECT_EQ(MessageOfTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"note":1)"),
            "accepted");
  EXPECT_EQ(MessageOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"I8","shape":[7],"data_offsets":[1,8]}})"),
            "accepted");
}

TEST(Safetensors, RefusesWrongHeaders) {
  EXPECT_THAT(Message(std::string(8, '\xff')), HasSubstr("expected at most 100000000"));
  EXPECT_THAT(Message(SafetensorsBytes("{}", "").substr(0, 9)),
              HasSubstr("ends inside its header"));
  EXPECT_THAT(MessageOf(" {}"), HasSubstr("starts with \" \""));
  EXPECT_THAT(MessageOf("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(MessageOf("{}"), HasSubstr("bytes 0 to 8 of the data"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":{"a":1}})"), HasSubstr("expected a string"));
  EXPECT_THAT(MessageOf(R"({"a":1,"a":2})"), HasSubstr("occurs twice"));
}

TEST(Safetensors, RefusesWrongTensors) {
  const std::string shape = R"("shape":[2],)";
  const std::string offsets = R"("data_offsets":[0,8])";
  ASSERT_EQ(MessageOfTensor(R"("dtype":"F32",)" + shape + offsets), "accepted");
  const std::pair<std::string, const char*> cases[] = {
      {R"("dtype":"F31",)" + shape + offsets, "tensor \"t\": unknown dtype \"F31\" (known: F64,"},
      {R"("dtype":1,)" + shape + offsets, "dtype is 1, expected a string"},
      {shape + offsets, "expected an object of dtype, shape and data_offsets"},
      {R"("dtype":"F32","shape":2,)" + offsets, "shape is 2, expected an array"},
      {R"("dtype":"F32","shape":[-2],)" + offsets, "a dimension is -2"},
      {R"("dtype":"F32","shape":[2.0],)" + offsets, "a dimension is 2.0"},
      {R"("dtype":"F32","shape":[4294967296,4294967296],)" + offsets, "more than 2^63 - 1 bytes"},
      {R"("dtype":"F32","shape":[18446744073709551615],)" + offsets, "expected a whole number"},
      {R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],)" + offsets, "9 dimensions"},
      {R"("dtype":"F16",)" + shape + offsets, "give 8 bytes, but its shape and F16 make 4"},
      {R"("dtype":"F32",)" + shape + R"("data_offsets":[8,0])", "begin at 8 and end before"},
      {R"("dtype":"F32",)" + shape + R"("data_offsets":[4,12])", "only 8 bytes of data"},
      {R"("dtype":"F32",)" + shape + R"("data_offsets":[0])", "expected [begin, end]"},
      {R"("dtype":"F32",)" + shape + R"("data_offsets":[0,-8])", "expected [begin, end]"},
  };
  for (const auto& [fields, expected] : cases) {
    EXPECT_THAT(MessageOfTensor(fields), HasSubstr(expected)) << fields;
  }
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const char* first, const char* second) {
    return MessageOf(fmt::format(
        R"({{"a":{{"dtype":"I8","shape":[4],"data_offsets":{}}},"b":{{"dtype":"I8","shape":[4],)"
        R"("data_offsets":{}}}}})",
        first, second));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]"), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]"), "accepted");
  EXPECT_THAT(two("[0,4]", "[3,7]"), HasSubstr("tensors \"a\" and \"b\" overlap"));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("tensors \"a\" and \"b\" overlap"));
  EXPECT_THAT(MessageOfTensor(R"("dtype":"I8","shape":[4],"data_offsets":[4,8])"),
              HasSubstr("bytes 0 to 4 of the data, before tensor \"t\""));
  EXPECT_THAT(MessageOfTensor(R"("dtype":"I8","shape":[4],"data_offsets":[0,4])"),
              HasSubstr("bytes 4 to 8 of the data, after the last tensor"));
}

class SafetensorsFolder : public testing::Test {
 protected:
  void WriteShard(const std::string& name, const std::string& tensor) const {
    SafetensorsBuilder().AddF32(tensor, {1}, {1}).Write(folder_ / name);
  }
  void WriteIndex(const std::string& weight_map) const {
    std::ofstream(folder_ / "model.safetensors.index.json")
        << R"({"metadata":{"total_size":8},"weight_map":)" << weight_map << "}";
  }
  std::string Message() const {
    const auto model = SafetensorsModel::OpenFolder(folder_.path());
    if (!model.ok()) return model.error().message;
    std::string names;
    for (const auto& tensor : model->tensors()) names += tensor.name;
    return names;
  }
  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolder, FindsTheShardsByTheirNames) {
  EXPECT_THAT(Message(), HasSubstr("no weights: expected model.safetensors"));
  std::ofstream(folder_ / "pytorch_model.bin") << "x";
  EXPECT_THAT(Message(), HasSubstr("must be saved as safetensors"));
  WriteShard(kSecond, "b");
  EXPECT_THAT(Message(), HasSubstr("shard 1 of 2 is missing"));
  WriteShard(kFirst, "a");
  EXPECT_EQ(Message(), "ab");
  WriteShard(kSecond, "a");
  EXPECT_THAT(Message(), HasSubstr("tensor \"a\" is in"));
  WriteShard("model-00003-of-00003.safetensors", "c");
  EXPECT_THAT(Message(), HasSubstr("contradicts the numbers of the other shards"));
}

TEST_F(SafetensorsFolder, FollowsTheIndex) {
  WriteIndex(R"({"a":"one.safetensors","b":"two.safetensors"})");
  WriteShard("one.safetensors", "a");
  EXPECT_THAT(Message(), HasSubstr("lists it: two.safetensors"));
  WriteShard("two.safetensors", "b");
  EXPECT_EQ(Message(), "ab");
}

TEST_F(SafetensorsFolder, RefusesContradictingIndexes) {
  WriteShard("one.safetensors", "a");
  WriteShard("two.safetensors", "b");
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a":"one.safetensors","c":"two.safetensors"})",
       "tensor \"b\" of two.safetensors is not"},
      {R"({"a":"two.safetensors","b":"one.safetensors"})", "found in one.safetensors"},
      {R"({"a":"one.safetensors","z":"one.safetensors"})", "missing there"},
      {R"({"a":"../one.safetensors"})", "expected a file name"},
      {R"({"a":7})", "expected a file name, found 7"},
      {R"({})", "\"weight_map\" is empty"},
      {R"([])", "\"weight_map\" is missing"},
  };
  for (const auto& [map, expected] : cases) {
    WriteIndex(map);
    EXPECT_THAT(Message(), HasSubstr(expected)) << map;
  }
  WriteIndex(R"({"a":"one.safetensors","b":"two.safetensors"})");
  WriteShard("model.safetensors", "a");
  EXPECT_THAT(Message(), HasSubstr("which are the weights?"));
}

}  // namespace
}  // namespace kvant::test
