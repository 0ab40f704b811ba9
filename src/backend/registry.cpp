// Which back end a call uses.
#include "backend/registry.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/threads/platform.h"
#include "saccade/backend.h"

namespace saccade {

std::atomic<const Backend*> backend_of_every_call = nullptr;

namespace {

// ---- Lists of back ends ----------------------------------------------------------------------------------------

/// Passes each call to the first back end of a list that supports it.
class BackendList final : public Backend {
 public:
  BackendList(std::string names, std::vector<const Backend*> members)
      : names_(std::move(names)), members_(std::move(members)) {}

  bool has(const Backend& member) const { return std::ranges::count(members_, &member) > 0; }

  std::string_view name() const override { return names_; }
  std::string_view description() const override { return "the first that supports a call"; }
  bool reads(Device device) const override {
    return std::ranges::all_of(members_, [device](const Backend* member) { return member->reads(device); });
  }

  bool try_small_attention(const AttentionOperands& p) const override {
    return members_.front()->try_small_attention(p);
  }
  void attention(const AttentionParams& p) const override { of(Operation::attention, p).attention(p); }
  std::unique_ptr<ForwardState> attention_state(const AttentionParams& p) const override {
    return of(Operation::attention_state, p).attention_state(p);
  }
  void decode(const AttentionParams& p) const override { of(Operation::decode, p).decode(p); }
  void decode_states(const AttentionParams& p, const DecodeStates& states) const override {
    of(Operation::decode_states, p).decode_states(p, states);
  }
  void merge_decode_states(const AttentionParams& p, const DecodeStates& states) const override {
    of(Operation::merge_decode_states, p).merge_decode_states(p, states);
  }
  void merge(const MergeParams& p) const override { of(p).merge(p); }
  void attention_backward(const BackwardParams& p) const override { of(p).attention_backward(p); }
  void inspect(const InspectParams& p) const override { of(p).inspect(p); }
  void product(const ProductParams& p) const override { of(p).product(p); }
  std::unique_ptr<PackedProduct> pack_product(const ProductParams& p) const override {
    return of(p).pack_product(p);
  }

 private:
  template <class... Params>
  const Backend& of(const Params&... params) const {
    for (const Backend* const member : members_)
      if (member->supports(params...)) return *member;
    throw std::invalid_argument("[SACCADE_BACKEND] " + names_ +
                                " does not support this call; with ',cpu' behind it the CPU computes it");
  }

  std::string names_;
  std::vector<const Backend*> members_;
};

// ---- The list of back ends -------------------------------------------------------------------------------------

/// All state that threads share, behind one lock.
struct Registry {
  threads::Mutex lock;
  std::vector<const Backend*> backends;
  std::map<std::string, std::unique_ptr<const BackendList>, std::less<>> lists;
  const Backend* of_process = nullptr;  // nullptr: SACCADE_BACKEND has not been read
  int scopes = 0;                       // alive now

  Registry() {
#define SACCADE_ADD(name) backends.push_back(&name##_backend());
    SACCADE_BACKENDS(SACCADE_ADD)
#undef SACCADE_ADD
  }
};

Registry& registry() {
  static Registry& the_one = *new Registry;  // never destroyed: other static objects may still call
  return the_one;
}

/// The back end of the innermost scope of this thread.
constinit thread_local const Backend* of_scope = nullptr;

std::string names_of(const std::vector<const Backend*>& backends) {
  std::string names;
  for (const Backend* backend : backends) names += (names.empty() ? "" : ", ") + std::string(backend->name());
  return names;
}

/// The back end of that name, or the list of several. The lock is held.
const Backend& find(Registry& all, std::string_view names, std::string_view who) {
  std::vector<const Backend*> members;
  for (std::string_view rest = names;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const auto found = std::ranges::find(all.backends, name, &Backend::name);
    if (found == all.backends.end())
      refuse(who, "names: expected one of ", names_of(all.backends),
             ", or several with a comma between them, got '", names, "'");
    members.push_back(*found);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (members.front() == &cpu_backend()) return cpu_backend();  // it supports everything
  auto& list = all.lists[std::string(names)];
  if (!list) list = std::make_unique<const BackendList>(std::string(names), std::move(members));
  return *list;
}

/// The back end of calls outside scopes. The lock is held.
const Backend& of_process(Registry& all) {
  if (!all.of_process) {
    const char* const names = std::getenv("SACCADE_BACKEND");
    all.of_process = &find(all, names && *names ? names : "cpu", "SACCADE_BACKEND");
  }
  if (all.scopes == 0) backend_of_every_call.store(all.of_process, std::memory_order_release);
  return *all.of_process;
}

}  // namespace

const Backend& backend_of_this_call() {
  if (of_scope) return *of_scope;
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  return of_process(all);
}

BackendRegistration::BackendRegistration(const Backend& backend) : backend_(backend) {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  const std::string_view name = backend.name();
  if (name.empty() || name.find(',') != std::string_view::npos)
    throw std::invalid_argument("[BackendRegistration] '" + std::string(name) + "' is no name of a back end");
  if (std::ranges::find(all.backends, name, &Backend::name) != all.backends.end())
    throw std::invalid_argument("[BackendRegistration] there is a back end '" + std::string(name) + "' already");
  all.backends.push_back(&backend);
}

BackendRegistration::~BackendRegistration() {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  std::erase(all.backends, &backend_);
  std::erase_if(all.lists, [this](const auto& list) { return list.second->has(backend_); });
}

// ---- The public functions --------------------------------------------------------------------------------------

std::vector<BackendInfo> available_backends() {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  std::vector<BackendInfo> result;
  for (const Backend* const backend : all.backends) result.push_back({backend->name(), backend->description()});
  return result;
}

std::string_view active_backend_name() { return active_backend().name(); }

void set_active_backend(std::string_view names) {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  all.of_process = &find(all, names, "set_active_backend");
  if (all.scopes == 0) backend_of_every_call.store(all.of_process, std::memory_order_release);
}

BackendChoice::BackendChoice(std::string_view names) {
  if (names.empty()) return;
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  backend_ = &find(all, names, "BackendChoice");
}

std::string_view BackendChoice::names() const { return backend_ ? backend_->name() : std::string_view(); }

void BackendScope::enter() {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  ++all.scopes;
  backend_of_every_call.store(nullptr, std::memory_order_release);  // every call looks for its scope now
  outer_ = std::exchange(of_scope, inner_);
}

void BackendScope::leave() {
  Registry& all = registry();
  const threads::Lock guard(all.lock);
  --all.scopes;
  of_scope = outer_;
}

}  // namespace saccade
