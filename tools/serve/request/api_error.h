// Errors as clients of OpenAI's interface read them, and texts of JSON for answers.
//
// Thread-safety: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kvant/result.h"
#include "tools/options/json.h"
#include "tools/serve/http/http_message.h"

namespace kvant::tools {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};         // the field that is wrong; "" if it is no field
  std::string code = {};          // "" if there is none
  std::string type = {};          // "" is the usual one of the status
  Json further = Json::object();  // members beside these
  int retry_seconds = 0;          // the client may try again after so long; 0: nothing is said
};

// The result of a function that can refuse a request; nothing where it has not.
using Refusal = std::optional<ApiError>;

// A field has a value that makes no sense: 400.
ApiError WrongValue(std::string param, std::string message);
// The field asks for what is not there: 400, or 501 with that status.
ApiError NotSupported(std::string param, std::string message, int status = 400);
// An error of the library: 400 for kInvalid, 501 for kNotSupported, 429 for kBusy, 500 for the
// rest.
ApiError ApiErrorOf(const Error& error, std::string param = {});

// {"error": {"message", "type", "param", "code", ...}}
Json ErrorJson(const ApiError& error);
// `json` is the error in the form of an interface.
HttpAnswer AnswerOf(const ApiError& error, const Json& json);

// A whole answer of JSON, or of another type.
HttpAnswer JsonAnswer(const Json& json);
HttpAnswer TextAnswer(std::string body, std::string type);

}  // namespace kvant::tools

// Returns the refusal of an expression to the caller.
#define KVANT_REFUSE(expression)                                                            \
  do {                                                                                      \
    if (auto kvant_refusal = (expression); kvant_refusal.has_value()) return kvant_refusal; \
  } while (false)
