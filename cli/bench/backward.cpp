// Gradients, compared with the peak of multiply-adds: 2.5 times the operations of the forward pass.
#include <fmt/format.h>
#include <saccade/backward.h>
#include <saccade/limits.h>
#include <saccade/operations.h>
#include <saccade/random.h>
#include <saccade/reference.h>

#include <algorithm>
#include <vector>

#include "sections.h"

namespace saccade::cli::bench {
namespace {

struct BackwardSize {
  std::int64_t heads, seqlen, head_dim;
  bool causal;
};

/// A problem whose forward pass is done.
class TimedGradients {
 public:
  explicit TimedGradients(const BackwardSize& size) : size_(size) {
    const Shape shape{1, size.heads, size.seqlen, size.head_dim};
    std::uint64_t seed = 0;
    for (Tensor* tensor : {&q_, &k_, &v_, &dout_}) *tensor = TorchGenerator(++seed).uniform(shape, -1.0F, 1.0F);
    for (Tensor* tensor : {&o_, &dq_, &dk_, &dv_}) *tensor = Tensor(DType::f32, shape);
    lse_ = Tensor(DType::f32, {1, size.heads, size.seqlen});
    options_.causal = size.causal ? Causal::top_left : Causal::none;
    options_.lse = lse_;
    forward();
  }

  void add_mask_and_dropout() {
    mask_ = TorchGenerator(9).uniform({size_.seqlen, size_.seqlen}, -1.0F, 1.0F);
    options_.mask = mask_;
    options_.dropout_p = 0.1;
    forward();
  }

  void run(int threads) {
    options_.num_threads = threads;
    attention_backward(q_, k_, v_, {.o = o_, .lse = lse_, .dout = dout_}, {.dq = dq_, .dk = dk_, .dv = dv_},
                       options_);
  }

  double flops() const { return 2.5 * attention_operations(q_, k_, v_, options_); }

  /// Whether dq agrees with the reference in the first, middle and last row of the last head: each row is an
  /// independent problem. (The reference would take minutes for sums over all rows; the tests check these.)
  bool agrees() const {
    const std::int64_t head = size_.heads - 1;
    const auto of_head = [head](const Tensor& tensor) { return tensor.view().select(0, 0).select(0, head); };
    return std::ranges::all_of(
        std::vector{std::int64_t{0}, size_.seqlen / 2, size_.seqlen - 1}, [&](std::int64_t i) {
          const auto row = [&](const Tensor& tensor) { return of_head(tensor).slice(0, i, i + 1); };
          AttentionOptions options{.causal = options_.causal, .query_offset = i};
          const auto exact = reference::attention_backward(row(q_), of_head(k_), of_head(v_), row(dout_), options);
          const auto naive = reference::naive_attention_backward(row(q_), of_head(k_), of_head(v_), row(dout_),
                                                                 options, exact.gradients);
          return compare(row(dq_), {exact.gradients.dq, naive.dq, exact.bound.dq}, kGradient).holds;
        });
  }

 private:
  void forward() { attention(q_, k_, v_, o_, options_); }

  BackwardSize size_;
  Tensor q_, k_, v_, dout_, o_, lse_, dq_, dk_, dv_, mask_;
  AttentionOptions options_;
};

std::vector<Line> measure_beside_peak(const BackwardSize& size, const Conditions& conditions) {
  TimedGradients timed(size);
  std::vector<Line> lines;
  for (const int threads : conditions.threads) {
    constexpr double kSeconds = 0.005;
    const Timing timing = measure(
        conditions.effort, [&] { timed.run(threads); },
        [&] { return timed.flops() / measure_peak_flops(threads, kSeconds, DType::f32); });
    lines.push_back({fmt::format("heads {}, seqlen {}, head_dim {}{}", size.heads, size.seqlen, size.head_dim,
                                 size.causal ? ", causal" : ""),
                     threads,
                     timing.seconds,
                     {{"gflops", timed.flops() / timing.seconds * 1e-9, 1}, {"share_of_peak", timing.share, 3}},
                     timed.agrees()});
  }
  return lines;
}

}  // namespace

Section backward_section() {
  Section section{"backward", "backward, f32", {"GFLOP/s", "of peak"}, {}};
  for (const BackwardSize& size : {BackwardSize{8, 1024, 128, false},
                                   {8, 4096, 128, false},
                                   {8, 1024, 64, false},
                                   {8, 4096, 64, false},
                                   {8, 1024, 128, true},
                                   {8, 4096, 128, true},
                                   {8, 1024, 64, true},
                                   {8, 4096, 64, true},
                                   {1, 4096, 64, false}})
    section.items.push_back(
        [size](const Conditions& conditions) { return measure_beside_peak(size, conditions); });
  return section;
}

Section backward_options_section() {
  Section section{"backward-options", "backward with a float mask and dropout, f32", {"times plain"}, {}};
  section.items.push_back([](const Conditions& conditions) {
    const BackwardSize size{8, 1024, 64, false};
    TimedGradients plain(size), with(size);
    with.add_mask_and_dropout();
    std::vector<Line> lines;
    for (const int threads : conditions.threads) {
      const Timing timing = measure(
          conditions.effort, [&] { with.run(threads); }, [&] { return seconds_of([&] { plain.run(threads); }); });
      lines.push_back({"heads 8, seqlen 1024, head_dim 64",
                       threads,
                       timing.seconds,
                       {{"times_plain", 1 / timing.share, 3}},
                       plain.agrees()});
    }
    return lines;
  });
  return section;
}

Section backward_long_section() {
  Section section{"backward-long", "backward of one long head, f32", {"extra memory, MiB"}, {}};
  section.items.push_back([](const Conditions& conditions) {
    const BackwardSize size{1, 65536, 64, false};
    TimedGradients timed(size);
    const int threads = conditions.threads.back();
    double seconds = 0.0;
    const double extra = extra_memory([&] { seconds = seconds_of([&] { timed.run(threads); }); });
    return std::vector<Line>{{"heads 1, seqlen 65536, head_dim 64",
                              threads,
                              seconds,
                              {{"extra_mebibytes", extra / (1 << 20), 1}},
                              timed.agrees()}};
  });
  return section;
}

}  // namespace saccade::cli::bench
