// What the units of work of the schedules cost on one processor, as measure.cpp measures it.
#pragma once

#include <iosfwd>
#include <string>

#include "cpu/kernels.h"
#include "simulation.h"

namespace saccade::simulation {

/// Seconds, and the block sizes for which they hold. A tile of rows has plan.tile_q rows, a tile of scores
/// kTileKeys keys, too.
struct ForwardCosts {
  cpu::ForwardPlan plan;
  double pack_key = 0.0;                                  // a packed key
  double call = 0.0, rows = 0.0, pair = 0.0, edge = 0.0;  // of attend(): itself, a tile of rows, of scores; what
                                                          // a tile of scores costs more if some are hidden
};

struct BackwardCosts {
  cpu::BackwardPlan plan;
  double statistics_row = 0.0, write_row = 0.0;  // a row
  double begin_key = 0.0, end_key = 0.0;         // a key
  double logits_call = 0.0, logits_pair = 0.0, logits_edge = 0.0;
  double keys_call = 0.0, keys_pair = 0.0, rows_call = 0.0, rows_pair = 0.0;
  double park_pair = 0.0;
};

/// Of four rows that share a kv head.
struct DecodeCosts {
  cpu::DecodePlan plan;
  double split_call = 0.0, split_key = 0.0;  // a key of a kv head
  double merge_state = 0.0;                  // of one row
};

struct UnitCosts {
  std::string title;  // the processor and the kernels
  ThreadCosts threads;
  ForwardCosts forward;
  BackwardCosts backward;
  DecodeCosts decode;
};

/// The text of costs: a title, then a name and a number on each line.
UnitCosts read_costs(std::istream& in);
/// Reads a file. Throws std::runtime_error when it is not what write_costs() writes.
UnitCosts read_costs(const std::string& path);
void write_costs(std::ostream& out, const UnitCosts& costs);

}  // namespace saccade::simulation
