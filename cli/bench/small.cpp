// Six tokens of three numbers: the overhead of a call with almost nothing to compute.
#include <saccade/attention.h>
#include <saccade/linear.h>
#include <saccade/random.h>

#include <array>

#include "sections.h"

namespace saccade::cli::bench {
namespace {

// The timing loop that was published with the repeated-row example: a 6 x 3 input, three 3 x 4 projections,
// attention, through the public functions. Returns the seconds of one iteration.
double published_loop() {
  const Tensor input = TorchGenerator(1).rand({6, 3});
  std::array<Tensor, 3> weights, projected;
  std::array<TensorView, 3> weight_views;
  std::array<MutableTensorView, 3> projected_views;
  for (std::size_t i = 0; i < 3; ++i) {
    weights[i] = TorchGenerator(i + 2).rand({3, 4});
    projected[i] = Tensor(DType::f32, {6, 4});
    weight_views[i] = weights[i];
    projected_views[i] = projected[i];
  }
  Tensor out(DType::f32, {6, 4});
  const TensorView x = input;
  const MutableTensorView o = out;
  constexpr int kTurns = 100000;
  std::vector<double> turns;
  for (int repetition = 0; repetition < 11; ++repetition) {
    turns.push_back(seconds_of([&] {
                      for (int turn = 0; turn < kTurns; ++turn) {
                        for (std::size_t i = 0; i < 3; ++i)
                          linear(x, weight_views[i], projected_views[i], {.weight_layout = WeightLayout::in_out});
                        attention(projected_views[0], projected_views[1], projected_views[2], o);
                      }
                    }) /
                    kTurns);
  }
  return median(turns);
}

}  // namespace

Section loop_section() {
  Section section{"loop", "published loop, f32", {"ns per iteration"}, {}};
  section.items.push_back([](const Conditions&) -> std::vector<Line> {
    const double seconds = published_loop();
    return {{"6 x 3 input, three 3 x 4 projections, attention", 1, seconds, {{"ns", seconds * 1e9, 0}}}};
  });
  return section;
}

}  // namespace saccade::cli::bench
