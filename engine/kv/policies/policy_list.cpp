// Finding a policy by name.
#include "engine/kv/policies/policy_list.h"

namespace kvant::kv {
namespace {

template <class... Policies>
std::unique_ptr<const Policy> Find(PolicyTypes<Policies...> /*list*/, std::string_view name,
                                   int64_t window) {
  std::unique_ptr<const Policy> policy;
  ((name == Policies::kName ? void(policy = std::make_unique<const Policies>(window)) : void()),
   ...);
  return policy;
}

}  // namespace

std::unique_ptr<const Policy> MakePolicy(std::string_view name, int64_t window) {
  if (name.empty()) name = window == 0 ? Full::kName : Window::kName;
  return Find(PolicyList(), name, window);
}

}  // namespace kvant::kv
