#include "costs.h"

#include <fstream>
#include <istream>
#include <map>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <type_traits>

namespace saccade::simulation {
namespace {

/// Calls f(name, number) for each number.
template <class Costs, class F>
void for_each_number(Costs& costs, const F& f) {
  f("threads.team", costs.threads.team);
  f("threads.notice", costs.threads.notice), f("threads.wake", costs.threads.wake);

  auto& forward = costs.forward;
  f("forward.tile_q", forward.plan.tile_q), f("forward.block_q", forward.plan.block_q);
  f("forward.block_q_alone", forward.plan.block_q_alone), f("forward.block_k", forward.plan.block_k);
  f("forward.packed_block", forward.plan.packed_block);
  f("forward.pack_key", forward.pack_key), f("forward.call", forward.call), f("forward.rows", forward.rows);
  f("forward.pair", forward.pair), f("forward.edge", forward.edge);

  auto& backward = costs.backward;
  f("backward.block_q", backward.plan.block_q), f("backward.block_k", backward.plan.block_k);
  f("backward.tile_q", backward.plan.tile_q);
  f("backward.statistics", backward.plan.statistics), f("backward.dq", backward.plan.dq);
  f("backward.parked", backward.plan.parked);
  f("backward.statistics_row", backward.statistics_row), f("backward.write_row", backward.write_row);
  f("backward.begin_key", backward.begin_key), f("backward.end_key", backward.end_key);
  f("backward.logits_call", backward.logits_call), f("backward.logits_pair", backward.logits_pair);
  f("backward.logits_edge", backward.logits_edge);
  f("backward.keys_call", backward.keys_call), f("backward.keys_pair", backward.keys_pair);
  f("backward.rows_call", backward.rows_call), f("backward.rows_pair", backward.rows_pair);
  f("backward.park_pair", backward.park_pair);

  auto& decode = costs.decode;
  f("decode.rows", decode.plan.rows), f("decode.step", decode.plan.step), f("decode.split", decode.plan.split);
  f("decode.state", decode.plan.state);
  f("decode.split_call", decode.split_call), f("decode.split_key", decode.split_key);
  f("decode.merge_state", decode.merge_state);
}

}  // namespace

UnitCosts read_costs(std::istream& in) {
  UnitCosts costs;
  std::getline(in, costs.title);
  std::map<std::string, double> numbers;
  std::string name;
  for (double number = 0.0; in >> name >> number;) numbers[name] = number;
  if (!in.eof()) throw std::runtime_error("expected a name and a number on each line, got '" + name + "'");
  for_each_number(costs, [&](const char* of, auto& number) {
    const auto found = numbers.find(of);
    if (found == numbers.end() || found->second < 0)
      throw std::runtime_error(std::string("there is no number ") + of + " of at least 0");
    number = static_cast<std::remove_reference_t<decltype(number)>>(found->second);
    numbers.erase(found);
  });
  if (!numbers.empty()) throw std::runtime_error("there is no cost '" + numbers.begin()->first + "'");
  return costs;
}

UnitCosts read_costs(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  try {
    return read_costs(file);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

void write_costs(std::ostream& out, const UnitCosts& costs) {
  out << costs.title << "\n";
  for_each_number(costs, [&](const char* name, const auto& number) { out << name << ' ' << number << '\n'; });
}

}  // namespace saccade::simulation
