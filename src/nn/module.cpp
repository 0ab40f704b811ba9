#include "saccade/module.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"
#include "saccade/random.h"

namespace saccade {
namespace {

/// Collects the errors of a checkpoint for one message.
class Faults {
 public:
  void missing(const std::string& name) { add(missing_, name); }
  void unexpected(const std::string& name) { add(unexpected_, name); }
  void wrong(const std::string& what) { add(wrong_, what); }

  bool any() const { return missing_.count + unexpected_.count + wrong_.count != 0; }

  std::string text() const {
    std::string result = "cannot load:";
    const auto append = [&](const char* title, const List& list) {
      if (list.count == 0) return;
      if (result.back() != ':') result += ";";
      result += title + list.text;
      if (list.count > kMaxShown) result += " and " + std::to_string(list.count - kMaxShown) + " more";
    };
    append(" missing ", missing_);
    append(" unexpected ", unexpected_);
    append(" ", wrong_);
    return result;
  }

 private:
  static constexpr std::size_t kMaxShown = 12;

  struct List {
    std::string text;
    std::size_t count = 0;
  };

  static void add(List& list, const std::string& item) {
    if (list.count++ >= kMaxShown) return;
    list.text += (list.text.empty() ? "" : ", ") + item;
  }

  List missing_, unexpected_, wrong_;
};

Faults faults_of(const std::vector<NamedParameter>& wanted, const std::map<std::string, TensorView>& given) {
  Faults faults;
  for (const NamedParameter& parameter : wanted) {
    const auto entry = given.find(parameter.name);
    if (entry == given.end()) {
      faults.missing(parameter.name);
    } else if (!std::ranges::equal(entry->second.dims(), parameter.value.dims())) {
      faults.wrong(parameter.name + " is " + to_string(entry->second.dims()) + ", expected " +
                   to_string(parameter.value.dims()));
    } else if (!is_floating(entry->second.dtype)) {
      faults.wrong(parameter.name + " is " + std::string(name_of(entry->second.dtype)) + ", expected f32");
    }
  }
  for (const auto& entry : given) {
    const auto has_its_name = [&](const NamedParameter& parameter) { return parameter.name == entry.first; };
    if (std::ranges::none_of(wanted, has_its_name)) faults.unexpected(entry.first);
  }
  return faults;
}

}  // namespace

MutableTensorView Parameter::gradient_to_add_to() {
  if (gradient.rank() == 0) gradient = Tensor(DType::f32, value.shape());
  return gradient.mutable_view();
}

std::vector<NamedParameter> Module::parameters() {
  std::vector<NamedParameter> result;
  collect("", result);
  return result;
}

void Module::collect(const std::string& prefix, std::vector<NamedParameter>& into) {
  for (const Part& part : parts()) {
    if (part.module != nullptr) {
      part.module->collect(prefix + part.name + ".", into);
      continue;
    }
    Parameter& whole = *part.parameter;
    NamedParameter named{.name = prefix + part.name,
                         .value = whole.value.mutable_view().slice(0, part.first_row, part.end_row),
                         .gradient = {}};
    if (whole.gradient.rank() != 0) {
      named.gradient = whole.gradient.mutable_view().slice(0, part.first_row, part.end_row);
    }
    into.push_back(std::move(named));
  }
}

void Module::zero_grad() {
  for (const Part& part : parts()) {
    if (part.module != nullptr) {
      part.module->zero_grad();
    } else {
      part.parameter->gradient_to_add_to();
      std::ranges::fill(part.parameter->gradient.values<float>(), 0.0f);
    }
  }
}

void Module::train(bool training) {
  for (Module* const module : all()) module->training_ = training;
}

std::vector<Module*> Module::all() {
  std::vector<Module*> modules{this};
  for (const Part& part : parts())
    if (part.module != nullptr) std::ranges::copy(part.module->all(), std::back_inserter(modules));
  return modules;
}

void Module::seed_dropout(std::uint64_t seed) {
  std::uint64_t index = 0;
  for (const Part& part : parts())
    if (part.module != nullptr) part.module->seed_dropout(derived_seed(seed, index++));
}

StateDict Module::state_dict() const {
  StateDict result;
  // parts() returns mutable references; here they are only read.
  for (const NamedParameter& parameter : const_cast<Module*>(this)->parameters()) {
    result.emplace(parameter.name, Tensor::copy_of(parameter.value));
  }
  return result;
}

void Module::load_state_dict(const StateDict& state) {
  std::map<std::string, TensorView> given;
  for (const auto& [parameter, value] : state) given.emplace(parameter, value.view());
  translate("", given);

  const std::vector<NamedParameter> wanted = parameters();
  const Faults faults = faults_of(wanted, given);
  if (faults.any()) refuse(name_, faults.text());
  for (const NamedParameter& parameter : wanted) copy(given.at(parameter.name), parameter.value);
}

void Module::translate(const std::string& prefix, std::map<std::string, TensorView>& entries) {
  for (const Part& part : parts())
    if (part.module != nullptr) part.module->translate(prefix + part.name + ".", entries);
}

}  // namespace saccade
