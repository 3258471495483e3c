// A larger file never measures worse: types chosen for growing sizes, and the divergence of each
// file on a text that no choice has seen.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/quantize/calibration_text.h"
#include "engine/quantize/size_plan.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "quant/format.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;

constexpr char kPlay[] =
    "FRIAR:\nSoft, gentle youth, what brings thee here so soon?\nThe lark hath not yet sung, nor "
    "is the dew\nUpon the meadow dry. Speak, art thou well?\n\nBOY:\nI am not sick, good father, "
    "but in love,\nAnd he that loves sleeps not, nor eats, nor rests.\nMy lady's brother swore to "
    "have my head,\nFor that I sang beneath her window late.\n\nFRIAR:\nThen sing no more, and "
    "live. A song is short,\nBut death is longer than the longest night.\n";
constexpr char kStory[] =
    "Once upon a time there was a small dog named Max. Max lived in a big red house with a girl "
    "named Sue. One day Max saw a bird in the garden. The bird was sad because it could not fly. "
    "\"Do not cry,\" said Max. \"I will help you.\" Max ran to Sue and barked. Sue came to the "
    "garden and saw the bird. She gave it water and some bread. The next day the bird was happy "
    "and could fly again. It sang a song for Max and Sue. They were very good friends.\n";

struct GrowingCase {
  const char* name;
  std::string path;
  const char* text;
};

void PrintTo(const GrowingCase& value, std::ostream* out) { *out << value.name; }

class LargerFiles : public testing::TestWithParam<GrowingCase> {
 protected:
  using Table = std::vector<std::vector<float>>;

  Table RowsOf(const std::string& path) const {
    Table rows;
    const auto model = Model::Open(path);
    EXPECT_TRUE(model.ok());
    const auto tokens = (*model)->tokenizer().Encode(GetParam().text, {});
    SessionOptions options;
    options.threads = 2;
    const auto session = Session::Create(*model, options);
    const auto keep = [&](std::span<const float> logits) -> Status {
      rows.emplace_back(logits.begin(), logits.end());
      return {};
    };
    EXPECT_TRUE((*session)->AppendAll(*tokens, keep).ok());
    return rows;
  }

  static double Divergence(const Table& base, const Table& other) {
    double sum = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      sum += evaluate::KlDivergence(evaluate::Normalize(base[i]), evaluate::Normalize(other[i]));
    }
    return sum / static_cast<double>(base.size());
  }

  // The divergences of files of growing size.
  void Grow(bool calibrated) {
    const std::string path = GetParam().path;
    KVANT_SKIP_WITHOUT(path);
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const Table base = RowsOf(path);
    test::TemporaryFolder folder;
    double before = 0;
    for (const double bits : {4.6, 4.9, 5.2, 5.6, 6.1, 6.7, 7.5, 8.5, 10.0}) {
      SizeRequest request;
      request.bits = bits;
      request.measure.threads = 2;
      request.measure.sample_values = 1 << 14;
      for (const quant::FormatTraits& format : quant::AllFormats()) {
        const bool standard = static_cast<uint32_t>(format.type) < 133;
        if (standard && !format.needs_importance && format.bits_per_value() >= 3) {
          request.measure.formats.push_back(&format);
        }
      }
      if (calibrated) {
        request.calibration.emplace();
        request.calibration->text = kCalibrationText;
        request.calibration->tokens_max = 256;
        request.calibration->threads = 2;
      }
      const auto plan = PlanForSize(*file, {}, request);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      EXPECT_EQ(plan->calibration_tokens > 0, calibrated);
      PlanOptions options;
      options.choice = &plan->choice;
      const auto quantized = PlanQuantization(*file, options);
      ASSERT_TRUE(quantized.ok());
      ASSERT_TRUE(WriteQuantized(*file, *quantized, folder / "q.gguf", {.threads = 2}).ok());
      const double divergence = Divergence(base, RowsOf(folder / "q.gguf"));
      if (before > 0) {
        EXPECT_LE(divergence, 1.05 * before) << bits << " bits";
      }
      before = divergence;
    }
  }
};

TEST_P(LargerFiles, AreNotWorseByTypicalSensitivities) { Grow(false); }

TEST_P(LargerFiles, AreNotWorseByMeasuredOnes) { Grow(true); }

INSTANTIATE_TEST_SUITE_P(
    Models, LargerFiles,
    testing::Values(
        GrowingCase{"shakespeare", KVANT_SOURCE_DIR "/models/shakespeare/shakespeare-bf16.gguf",
                    kPlay},
        GrowingCase{"tinystories",
                    test::SharedPath("models/tinystories-656k/TinyStories-656K-f32.gguf"), kStory}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kvant::quantize
