// A context that cannot move on, since recurrent layers keep one state of all tokens, is refused
// before anything is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvant/generator.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

TEST(ContextShift, RecurrentModelsRefuseItAtTheStart) {
  const auto model = Model::Open(SourcePath("models/lfm2-tiny/lfm2-tiny.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  SessionOptions options;
  options.context = 32;
  options.threads = 1;
  const auto session = Session::Create(*model, options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const Tokenizer& tokenizer = (*model)->tokenizer();
  const auto prompt = tokenizer.Encode("ROMEO:", {});
  auto sampler = Sampler::Create({}, (*model)->vocab_size());
  ASSERT_TRUE(prompt.ok() && sampler.ok());
  GenerateOptions generate;
  generate.max_tokens = 100;
  generate.ignore_eos = true;
  generate.shift_keep = 1;
  std::string text;
  const auto show = [&text](std::string_view piece) {
    text += piece;
    return true;
  };
  const auto refused = Generate(**session, tokenizer, *sampler, *prompt, generate, show);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("recurrent layers"));
  EXPECT_EQ(text, "");
  EXPECT_EQ((*session)->length(), 0);
  // Without it the text ends with its context.
  generate.shift_keep.reset();
  const auto made = Generate(**session, tokenizer, *sampler, *prompt, generate, show);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->finish_reason, FinishReason::kContext);
}

}  // namespace
}  // namespace kvant::test
