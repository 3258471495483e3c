// Uses the installed library as README.md shows it: opens a model and starts a session. The test
// passes no model, so it checks that the failure is reported as a value and that all of the engine
// links.
#include <kvant/base/version.h>
#include <kvant/engine/session.h>

#include <cstdio>

int main() {
  const auto model = kvant::Model::Open("no-such-model.gguf");
  if (model.ok()) return 1;
  if (model.error().code != kvant::ErrorCode::kIo) return 1;
  std::printf("kvant %s: %s\n", std::string(kvant::Version().version).c_str(),
              model.error().message.c_str());
  const auto session = kvant::ParseKvType("f16");
  return session.ok() ? 0 : 1;
}
