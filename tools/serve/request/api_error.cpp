#include "tools/serve/request/api_error.h"

#include <fmt/format.h>

#include <utility>

namespace kvant::tools {
namespace {

std::string_view UsualType(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
  }
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

constexpr int kRetrySeconds = 2;

}  // namespace

ApiError WrongValue(std::string param, std::string message) {
  ApiError error;
  error.message = fmt::format("{}: {}", param, message);
  error.param = std::move(param);
  error.code = "invalid_value";
  return error;
}

ApiError NotSupported(std::string param, std::string message, int status) {
  ApiError error = WrongValue(std::move(param), std::move(message));
  error.status = status;
  error.code = "unsupported_parameter";
  return error;
}

ApiError ApiErrorOf(const Error& error, std::string param) {
  ApiError out;
  out.message = error.message;
  out.param = std::move(param);
  switch (error.code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kCorrupt: out.status = 400; break;
    case ErrorCode::kContextFull:
      out.status = 400;
      out.code = "context_length_exceeded";
      break;
    case ErrorCode::kNotSupported: out.status = 501; break;
    case ErrorCode::kBusy:
      out.status = 429;
      out.code = "rate_limit_exceeded";
      out.message += fmt::format(". Please try again in {}s.", kRetrySeconds);
      out.retry_seconds = kRetrySeconds;
      break;
    case ErrorCode::kCancelled:
      out.status = 503;
      out.code = "server_error";
      break;
    default:
      out.status = 500;
      out.code = "server_error";
      break;
  }
  return out;
}

Json ErrorJson(const ApiError& error) {
  Json members = {{"message", error.message},
                  {"type", error.type.empty() ? std::string(UsualType(error.status)) : error.type},
                  {"param", TextOrNull(error.param)},
                  {"code", TextOrNull(error.code)}};
  members.update(error.further);
  return {{"error", std::move(members)}};
}

HttpAnswer AnswerOf(const ApiError& error, const Json& json) {
  HttpAnswer answer = JsonAnswer(json);
  answer.status = error.status;
  if (error.retry_seconds > 0) {
    answer.headers.push_back({"Retry-After", std::to_string(error.retry_seconds)});
  }
  // Clients try again after other numbers above 500; this one stays.
  if (error.status == 501) answer.headers.push_back({"X-Should-Retry", "false"});
  if (error.status == 401) answer.headers.push_back({"WWW-Authenticate", "Bearer"});
  return answer;
}

HttpAnswer JsonAnswer(const Json& json) { return TextAnswer(Dump(json), "application/json"); }

HttpAnswer TextAnswer(std::string body, std::string type) {
  return {200, {{"Content-Type", std::move(type)}}, std::move(body)};
}

}  // namespace kvant::tools
