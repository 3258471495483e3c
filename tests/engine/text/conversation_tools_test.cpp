// Conversations with tools: answers are calls where that is asked for, results come back, and what
// a history has of broken calls does no harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "kvant/conversation.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/text/tool_templates.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

const std::shared_ptr<const Model>& CoffeeModel() {
  static const auto model =
      Model::Open(SourcePath("models/shakespeare/shakespeare.gguf"), OwnGemm());
  return *model;
}

std::unique_ptr<Conversation> OpenWithTools(const char* choice, uint64_t seed) {
  SessionOptions session = Options(KvType::kF16, 1);
  session.threads = 1;
  session.context = 1024;
  ConversationOptions options;
  options.sampling.temperature = 1.5;
  options.sampling.seed = seed;
  options.max_tokens = 300;
  options.render.tools = kOrderTools;
  options.tool_choice = ToolChoice::Of(choice);
  auto made = Conversation::Create(
      CoffeeModel(), [session](int64_t) { return Runner::Create(CoffeeModel(), session); },
      *ChatTemplate::Named(*CoffeeModel(), "chatml"), std::move(options));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(ToolConversation, CallsToolsAndGoesOnWithTheirResults) {
  int complete = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto conversation = OpenWithTools("order", seed);
    ASSERT_NE(conversation, nullptr);
    conversation->AddUser("Two coffees, please.");
    std::string events;
    const auto report = conversation->Answer({.call = [&](const ToolEvent& event) {
      events += event.kind == ToolEvent::Kind::kCallBegin ? "<"
                : event.kind == ToolEvent::Kind::kCallEnd ? ">"
                                                          : "";
      return true;
    }});
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_FALSE(report->calls.empty());
    EXPECT_EQ(events.substr(0, 2), "<>");
    if (report->finish_reason != FinishReason::kStop) continue;
    ++complete;
    const ChatMessage& message = conversation->entries().back().message;
    const auto members = nlohmann::json::parse(message.members);
    ASSERT_EQ(members.at("tool_calls").size(), report->calls.size());
    for (const auto& call : members["tool_calls"]) {
      EXPECT_EQ(call.at("id").get<std::string>().size(), 9u);
      const std::string id = call["id"];
      ASSERT_TRUE(conversation
                      ->Add({.role = "tool",
                             .content = "done",
                             .reasoning = {},
                             .members = R"({"tool_call_id": ")" + id + "\"}"})
                      .ok());
    }
    ASSERT_TRUE(conversation->SetToolChoice(ToolChoice::Of("none")).ok());
    EXPECT_FALSE(conversation->SetToolChoice(ToolChoice::Of("nobody")).ok());
    const auto second = conversation->Answer({});
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_TRUE(second->calls.empty());
  }
  EXPECT_GT(complete, 0);
}

TEST(ToolConversation, TakesMalformedCallsOfTheHistory) {
  const auto conversation = OpenWithTools("auto", 1);
  ASSERT_NE(conversation, nullptr);
  const auto add = [&](const std::string& arguments) {
    return conversation->AddJson(R"([{"role": "user", "content": "a"}, {"role": "assistant",
      "content": "", "tool_calls": [{"function": {"name": "order", "arguments": )" +
                                 arguments + R"(}}]}, {"role": "tool", "content": "b"}])");
  };
  for (const char* arguments : {R"("{\"size\": \"sm")", "7", "null", R"("")", R"({"size": 1})"}) {
    ASSERT_TRUE(add(arguments).ok());
    EXPECT_TRUE(conversation->Answer({}).ok()) << arguments;
    conversation->Reset();
  }
  ASSERT_TRUE(conversation
                  ->AddJson(R"([{"role": "user", "content": "a"},
                               {"role": "assistant", "content": "", "tool_calls": {}}])")
                  .ok());
  conversation->AddUser("b");
  const auto refused = conversation->Answer({});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("/1/tool_calls: expected an array"));
}

}  // namespace
}  // namespace kvant::test
