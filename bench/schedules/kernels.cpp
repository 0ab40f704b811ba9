#include "kernels.h"

#include "cpu/schedule/schedules.h"
#include "simulation.h"
#include "tiles.h"

namespace saccade::simulation {
namespace {

using cpu::BackwardKernels;
using cpu::DecodeKernels;
using cpu::DecodeRows;
using cpu::ForwardKernels;
using cpu::KeyBlock;
using cpu::PackedKeys;
using cpu::QueryRows;

UnitCosts now;  // the costs of the call in progress: kernels have no other place for them

double times(std::int64_t number, double seconds) { return static_cast<double>(number) * seconds; }

const ForwardKernels kForward{
    .plan = [](const AttentionParams&) { return now.forward.plan; },
    .pack_block =
        [](const AttentionParams& p, std::int64_t batch, std::int64_t, std::int64_t block, KeyRange readable,
           void*) {
          KeyRange keys = keys_of_block(p, batch, block, now.forward.plan.block_k);
          keys = {std::max(keys.begin, readable.begin), std::min(keys.end, readable.end)};
          spend(times(count(keys), now.forward.pack_key));
        },
    .attend =
        [](const AttentionParams& p, const QueryRows& work, const PackedKeys& keys, void*) {
          const ForwardCosts& costs = now.forward;
          const Tiles tiles = tiles_of(p, work, costs.plan.tile_q, {0, p.kv_length(work.batch)});
          double seconds = costs.call + times(tiles.rows, costs.rows) + times(tiles.pairs, costs.pair) +
                           times(tiles.edges, costs.edge);
          if (!keys.blocks) {
            const KeyRange seen = Visibility(p, work.batch).visible(work.row, row_count(p, work));
            seconds += times(count(seen), costs.pack_key);
          }
          spend(seconds);
        },
    .state_bytes = nullptr,
    .resume = nullptr,
    .finish = nullptr};

Tiles tiles_of(const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows) {
  return simulation::tiles_of(b, keys, rows, now.backward.plan);
}

std::int64_t key_count(const BackwardParams& b, const KeyBlock& keys) {
  return count(keys_of_block(b, keys, now.backward.plan));
}

const BackwardKernels kBackward{
    .plan = [](const BackwardParams&) { return now.backward.plan; },
    .statistics =
        [](const BackwardParams& b, const QueryRows& rows, void*) {
          spend(times(row_count(b.attention, rows), now.backward.statistics_row));
          return 0.0;
        },
    .begin = [](const BackwardParams& b, const KeyBlock& keys,
                void*) { spend(times(key_count(b, keys), now.backward.begin_key)); },
    .logits =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, const void*, void*, double&) {
          const Tiles tiles = tiles_of(b, keys, rows);
          spend(now.backward.logits_call + times(tiles.pairs, now.backward.logits_pair) +
                times(tiles.edges, now.backward.logits_edge));
          return tiles.pairs > 0;
        },
    .keys =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, bool, void*) {
          spend(now.backward.keys_call + times(tiles_of(b, keys, rows).pairs, now.backward.keys_pair));
        },
    .rows =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, bool, void*, void*) {
          spend(now.backward.rows_call + times(tiles_of(b, keys, rows).pairs, now.backward.rows_pair));
        },
    .park =
        [](const BackwardParams& b, const KeyBlock& keys, const QueryRows& rows, void*, void*) {
          spend(times(tiles_of(b, keys, rows).pairs, now.backward.park_pair));
          return true;
        },
    .end =
        [](const BackwardParams& b, const KeyBlock& keys, void*) {
          spend(times(key_count(b, keys), now.backward.end_key));
          return true;
        },
    .write =
        [](const BackwardParams& b, const QueryRows& rows, const void*) {
          spend(times(row_count(b.attention, rows), now.backward.write_row));
          return true;
        }};

const DecodeKernels kDecode{
    .plan = [](const AttentionParams&) { return now.decode.plan; },
    .split =
        [](const AttentionParams& p, const DecodeRows& rows, std::int64_t split, void*, void*) {
          const KeyRange keys = keys_of_block(p, rows.batch, split, now.decode.plan.split);
          spend(now.decode.split_call + times(rows.kv_heads * count(keys), now.decode.split_key));
        },
    .merge = [](const AttentionParams&, const DecodeRows& rows, const void*, std::int64_t, std::int64_t splits,
                void*) { spend(times(rows.kv_heads * rows.count * splits, now.decode.merge_state)); }};

}  // namespace

double seconds_of(const Problem& problem, const UnitCosts& costs, int threads) {
  now = costs;
  return simulate(threads, costs.threads, [&] {
    if (problem.pass == Pass::backward) return run_backward(kBackward, backward_params(problem, DType::f32));
    const AttentionParams p = attention_params(problem, DType::f32);
    problem.pass == Pass::decode ? run_decode(kDecode, p) : run_forward(kForward, p);
  });
}

}  // namespace saccade::simulation
