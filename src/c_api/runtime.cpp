// The version, threads, instruction sets and progress, for C.
#include "saccade/runtime.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c_api/call.h"

using namespace saccade;
using namespace saccade::c_api;

const char* saccade_version(void) { return version().data(); }

const char* saccade_threading_layer(void) { return threading_layer().data(); }

std::int32_t saccade_num_threads(void) { return num_threads(); }

saccade_status saccade_set_num_threads(std::int32_t threads) {
  return guarded([&] { set_num_threads(threads); });
}

saccade_status saccade_set_parallel_for(saccade_parallel_for parallel_for, void* context) {
  return guarded([&] {
    if (parallel_for == nullptr) return set_parallel_for(nullptr);
    set_parallel_for([=](int tasks, const std::function<void(int)>& task) {
      using Task = std::function<void(int)>;
      const auto call = [](void* function, std::int32_t i) { (*static_cast<const Task*>(function))(i); };
      parallel_for(context, tasks, call, const_cast<Task*>(&task));
    });
  });
}

const char* const* saccade_available_isas(void) {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> list;
    for (const Isa isa : available_isas()) list.push_back(name_of(isa).data());
    list.push_back(nullptr);
    return list;
  }();
  return names.data();
}

const char* saccade_active_isa(void) {
  const char* name = nullptr;
  guarded([&] { name = name_of(active_isa()).data(); });
  return name;
}

saccade_status saccade_set_active_isa(const char* name) {
  return guarded([&] {
    const std::string_view wanted = text_of("saccade_set_active_isa", "name", name);
    for (const Isa isa : built_isas())
      if (name_of(isa) == wanted) return set_active_isa(isa);
    refuse("saccade_set_active_isa", "there is no instruction set '", std::string(wanted), "'");
  });
}

void saccade_release_workspaces(void) { release_workspaces(); }

namespace {

/// The C progress hook, called through a C++ one.
class CallerHook {
 public:
  CallerHook(saccade_progress_hook function, void* context)
      : hook_([this, function, context] {
          is_running_ = true;
          const struct End {
            bool& is_running;
            ~End() { is_running = false; }
          } end{is_running_};
          if (function(context) != 0) throw Interrupted();
        }) {}
  bool is_running() const { return is_running_; }

 private:
  bool is_running_ = false;
  ProgressHook hook_;
};

thread_local std::optional<CallerHook> thread_hook;

}  // namespace

saccade_status saccade_set_progress_hook(saccade_progress_hook hook, void* context) {
  return guarded([&] {
    if (thread_hook && thread_hook->is_running())
      refuse("saccade_set_progress_hook", "a hook may not set another one");
    thread_hook.reset();
    if (hook != nullptr) thread_hook.emplace(hook, context);
  });
}
