// Calls of tools in the answers of a model.
//
// A ToolFormat describes how a model writes calls and thoughts. It is found by rendering the
// model's chat template several times with one thing changed and comparing the texts, or, where
// that shows nothing, by marks that only one format has. A ToolAnswer reads an answer while it is
// generated and tells content, thoughts and calls apart. ToolGrammar makes of the same description
// a grammar, so that what is generated parses.
//
// Texts are UTF-8. Thread-safety: a ToolFormat is a plain value; a ToolAnswer belongs to one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/chat.h"
#include "kvant/grammar.h"
#include "kvant/result.h"

namespace kvant {

struct ToolFormat {
  enum class Form : uint8_t {
    kJson,      // open {"name": "f", "arguments": {"a": 1}} close
    kNamed,     // open f name_close {"a": 1} close
    kTagged,    // open f name_close argument_open a key_close 1 argument_close close
    kPythonic,  // open [f(a=1)] close
    kBraces,    // open f{a:1,b:<|"|>text<|"|>} close
    kChannels,  // messages with a channel and a recipient, as gpt-oss writes them
  };

  std::string name = {};  // what it is called in messages: "hermes"
  Form form = Form::kJson;

  // The texts around calls. Blanks in them stand for any blanks.
  std::string section_open = {};   // once, before the first call
  std::string call_open = {};      // before each call: up to its name or its JSON object
  std::string call_close = {};     // behind each call
  std::string separator = {};      // between a call_close and the next call_open
  std::string section_close = {};  // once, behind the last call
  bool is_array = false;           // the calls are the elements of one array in brackets

  // kJson: the names of members.
  std::string name_key = "name";
  std::string arguments_key = "arguments";
  std::string id_key = {};       // "": calls have no id
  bool id_is_first = false;      // the id stands before the name
  std::string wrapper_key = {};  // a member whose value is an object with name and arguments

  // kNamed and kTagged.
  std::string name_close = {};  // between the name and the arguments
  std::string id_open = {};     // kNamed: between the name and an id; name_close stands behind it
  bool name_in_id = false;      // kNamed: the name is a part of the id, "functions.f:0"

  // kTagged. Values of a text type stand as they are, others as JSON.
  std::string argument_open = {};
  std::string key_close = {};
  std::string argument_close = {};

  std::string reasoning_open = {};  // "": as ReasoningText knows it
  std::string reasoning_close = {};
  std::vector<std::string> skipped = {};  // marks that belong to no part of an answer

  bool opens_in_prompt = false;  // the prompt ends with the mark before a call or a skipped one

  // How the template takes messages.
  bool shows_tools = true;      // it writes the list of tools; else a message has to
  bool shows_calls = true;      // it writes the calls of earlier answers; else their text has to
  bool is_parallel = true;      // an answer may have several calls
  bool text_arguments = false;  // it wants the arguments of earlier calls as JSON in a text
  bool null_content = false;    // it writes calls only of messages whose content is null
  bool takes_system = true;     // it takes a message of the system
};

// The format of a template. Every template has one: where it knows no tools, that is a format of
// kvant's own, "generic", with shows_tools and shows_calls unset. kInvalid where the template
// cannot even render a message of the user.
Result<ToolFormat> DetectToolFormat(const ChatTemplate& chat_template);

// kInvalid, with the place, for what is no JSON array of tools in the form of OpenAI's API: objects
// with type "function" and an object `function` that has a name of letters, digits, _ and -,
// and perhaps a description, JSON schema `parameters` and `strict`; two tools of one name too.
Status CheckTools(std::string_view tools);

// A conversation as the template takes it.
struct ToolMessages {
  std::vector<ChatMessage> messages;
  std::string tools;  // what ChatRenderOptions::tools has to be
};

// Makes messages fit for the template. Arguments of earlier calls become what it wants, an object
// or a text; those that are no JSON object are passed as the text that they are, in an object with
// the single member `text` where it wants objects. Calls without an id get one. Where it writes no
// calls they become text of the format, results of tools become messages of the user, and where it
// writes no tools the message of the system lists them. kInvalid, with the place, for `tools` as
// CheckTools has it, and for tool_calls that are no array of objects with a function's name.
Result<ToolMessages> MessagesForTools(const ToolFormat& format, std::string_view tools,
                                      std::span<const ChatMessage> messages);

struct ToolCall {
  std::string id = {};         // as the model wrote it; "" if it wrote none
  std::string name = {};       // which may be one that no tool has
  std::string arguments = {};  // a JSON object; a beginning of one where the call is not complete
  bool is_complete = false;
  std::string malformed = {};  // the text of the call from the first byte that is wrong
};

struct ToolEvent {
  enum class Kind : uint8_t {
    kReasoning,  // text: more of the thoughts
    kContent,    // text: more of the content
    kCallBegin,  // text: the name
    kArguments,  // text: more of the arguments
    kCallEnd,
  };
  Kind kind;
  std::string_view text = {};
  int64_t call = -1;         // the number of the call in the answer, from 0
  std::string_view id = {};  // kCallBegin: where it stands before the arguments; kCallEnd: if any
  bool is_complete = false;  // kCallEnd
};

// Receives what happens; false ends the answer.
using ToolEventFunction = std::function<bool(const ToolEvent& event)>;

// Reads an answer that comes in pieces. What was handed on is never taken back: text that may
// become a mark is held back until it has or has not. Whatever is not a call is content. A call
// whose name was not complete before the answer ended is none, and its text is in cut_text().
class ToolAnswer {
 public:
  // `tools` is the JSON array that the template got; "" for none. Types in it decide how values
  // between tags are read, and which texts are calls where a format has no marks. `prompt` is
  // the text that the answer follows: templates may write the first mark themselves.
  ToolAnswer(const ToolFormat& format, std::string_view tools, std::string_view prompt,
             ToolEventFunction take);
  ~ToolAnswer();
  ToolAnswer(ToolAnswer&&) noexcept;

  // Takes more text; false where a call of the function returned false.
  bool Push(std::string_view text);
  // Hands on what was held back, and ends a call that was cut. Nothing may be pushed afterwards.
  bool Finish();

  const std::string& reasoning() const;
  const std::string& content() const;
  const std::vector<ToolCall>& calls() const;
  const std::string& cut_text() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// Whether an answer calls tools.
struct ToolChoice {
  enum class Kind : uint8_t {
    kAuto,      // content, and calls behind it, as the model wants
    kNone,      // content only
    kRequired,  // calls only
    kNamed,     // one call of the tool `name`
  };
  Kind kind = Kind::kAuto;
  std::string name = {};
  bool is_parallel = true;  // more than one call is allowed, where the format has that

  // "auto", "none", "required", or the name of a tool.
  static ToolChoice Of(std::string_view text);
};

// The grammar of answers in a format, as the text of one: names are those of tools, and arguments
// follow the tool's schema. With kAuto it begins at the mark of a call, and what comes before is
// free. A tool with `strict` has a schema that is enforced; a schema of another tool that cannot be
// enforced counts as any object. kInvalid for tools that are none, a choice of a tool that is not
// there, and with the tool's name and the place for a strict schema that cannot be enforced.
// kNotSupported for kNone.
Result<GrammarText> ToolGrammar(const ToolFormat& format, std::string_view tools,
                                const ToolChoice& choice, const Tokenizer& tokenizer);

}  // namespace kvant
