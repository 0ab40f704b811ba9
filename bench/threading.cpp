// What a threading layer costs beside the work: a call after a rest, and many threads on few processors. Prints
// one line for each. script/bench --threading links it with each layer.
#include <saccade/attention.h>
#include <saccade/backward.h>
#include <saccade/runtime.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

using namespace saccade;

double seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// 8 heads of 128 rows: half a millisecond of work.
class Call {
 public:
  void run(int threads) const { attention(x_, x_, x_, {.num_threads = threads}); }

 private:
  Tensor x_{DType::f32, {1, 8, 128, 64}};
};

/// A training step of attention, whose threads also wait for each other's turns.
class Step {
 public:
  void run(int threads) {
    attention(x_, x_, x_, o_, {.causal = Causal::top_left, .lse = lse_, .num_threads = threads});
    attention_backward(x_, x_, x_, {.o = o_, .lse = lse_, .dout = x_}, {.dq = dq_, .dk = dk_, .dv = dv_},
                       {.causal = Causal::top_left, .num_threads = threads});
  }

 private:
  static constexpr std::int64_t kHeads = 4, kRows = 1024, kDim = 64;
  Tensor x_{DType::f32, {1, kHeads, kRows, kDim}}, o_{DType::f32, {1, kHeads, kRows, kDim}},
      lse_{DType::f32, {1, kHeads, kRows}}, dq_{DType::f32, {1, kHeads, kRows, kDim}},
      dk_{DType::f32, {1, kHeads, kRows, kDim}}, dv_{DType::f32, {1, kHeads, kRows, kDim}};
};

double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

double after_rest(int threads) {
  const Call call;
  std::vector<double> times;
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double begin = seconds(CLOCK_MONOTONIC);
    call.run(threads);
    times.push_back(seconds(CLOCK_MONOTONIC) - begin);
  }
  return median(times);
}

/// Processor time of a training step with `many` threads, beside that with one.
double processor_time(int many) {
  Step step;
  std::vector<double> ratios;
  for (int i = 0; i < 15; ++i) {
    double spent[2];
    for (int side = 0; side < 2; ++side) {
      const int threads = side == 0 ? 1 : many;
      step.run(threads);
      const double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
      for (int repetition = 0; repetition < 10; ++repetition) step.run(threads);
      spent[side] = seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    }
    ratios.push_back(spent[1] / spent[0]);
  }
  return median(ratios);
}

}  // namespace

int main() {
  std::printf("%-8s half a millisecond of work on two threads after 100 ms of rest: %.3f ms\n",
              threading_layer().data(), 1e3 * after_rest(2));
  for (const int threads : {2, 64})
    std::printf("%-8s processor time of a training step with %d threads beside one: %.3f\n",
                threading_layer().data(), threads, processor_time(threads));
}
