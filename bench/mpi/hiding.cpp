// How much of a network's time distributed attention hides, and how well the cost model tells the time:
//
//   mpirun -n 2 hiding_bench [--seqlen 12288] [--heads 40] [--head-dim 128] [--threads 1] [--samples 3]
//                            [--backward] [--device NAME [--rates 0,1.5,0.5]]
//
// With --device each rank limits the rate at which its network device NAME sends, with tc, to these multiples of
// needed_bandwidth() by turns; 0: 40 Gbit/s. bench/mpi/hide runs it in two network namespaces. Causal, zigzag,
// gather. Rank 0 prints the speed of the kernels without messages, and for each rate the time, what the model
// says, and how much of the transfer was hidden.
#include <saccade/backward.h>
#include <saccade/cost_model.h>
#include <saccade/distributed.h>
#include <saccade/mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace saccade;
using distributed::Pass;
using Clock = std::chrono::steady_clock;

double seconds_of(const auto& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Messages of another communicator, and the seconds in which nothing is done but to ask for their end.
class WatchedCommunicator final : public distributed::Communicator {
 public:
  explicit WatchedCommunicator(distributed::Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request send(int to, const void* data, std::size_t bytes) override {
    is_waiting_ = false;
    return inner_.send(to, data, bytes);
  }
  Request receive(int from, void* data, std::size_t bytes) override {
    is_waiting_ = false;
    return inner_.receive(from, data, bytes);
  }
  void make_progress() override {
    is_waiting_ = false;
    inner_.make_progress();
  }
  bool is_finished(Request request) override {
    const Clock::time_point now = Clock::now();
    if (is_waiting_) waited += std::chrono::duration<double>(now - last_).count();
    last_ = now;
    const bool is_finished = inner_.is_finished(request);
    is_waiting_ = !is_finished;
    return is_finished;
  }
  std::size_t most_bytes() const override { return inner_.most_bytes(); }
  void all_gather(const void* own, void* all, std::size_t bytes, Clock::time_point until) override {
    inner_.all_gather(own, all, bytes, until);
  }

  double waited = 0.0;

 private:
  distributed::Communicator& inner_;
  bool is_waiting_ = false;
  Clock::time_point last_;
};

struct Settings {
  std::map<std::string, std::string> given;

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  }
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    return std::atoll(text(name, std::to_string(otherwise)).c_str());
  }
};

double most_of_ranks(double own) {
  double most = 0.0;
  MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

Tensor normal(Shape shape, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> draw;
  Tensor result(DType::f32, std::move(shape));
  for (float& x : result.values<float>()) x = draw(random);
  return result;
}

class HidingBench {
 public:
  explicit HidingBench(const Settings& settings)
      : settings_(settings),
        mpi_(MPI_COMM_WORLD),
        communicator_(mpi_),
        pass_(settings.given.contains("--backward") ? Pass::backward : Pass::forward),
        heads_(settings.number("--heads", 40)),
        dim_(settings.number("--head-dim", 128)),
        division_{.rows = distributed::Sharding::zigzag(settings.number("--seqlen", 12288), mpi_.size()),
                  .method = distributed::Method::gather},
        plan_({.num_heads = heads_, .num_kv_heads = heads_, .head_dim = dim_, .head_dim_v = dim_}, division_,
              {.causal = Causal::top_left}) {
    const std::int64_t rows = division_.rows.rows(mpi_.rank());
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i] = normal({heads_, rows, dim_}, 4 * mpi_.rank() + static_cast<int>(i));
    for (Tensor& result : results_) result = Tensor(DType::f32, {heads_, rows, dim_});
    lse_ = Tensor(DType::f32, {heads_, rows});
  }

  void run() {
    measure_kernels();
    needed_ = needed_bandwidth(plan_, pass_, machine_);
    if (mpi_.rank() == 0)
      std::printf("%d ranks, S %lld, %lld heads, %s: kernels %.1f Gflop/s; needs %.3f Gbit/s\n", mpi_.size(),
                  static_cast<long long>(division_.rows.length()), static_cast<long long>(heads_),
                  pass_ == Pass::forward ? "forward" : "backward", 1e-9 * rate(), 8e-9 * needed_);
    std::vector<double> rates;
    std::istringstream text(settings_.text("--rates", settings_.given.contains("--device") ? "0,1.5,0.5" : "0"));
    for (std::string number; std::getline(text, number, ',');) rates.push_back(std::atof(number.c_str()));
    std::map<double, std::vector<Sample>> samples;
    for (std::int64_t i = 0; i <= settings_.number("--samples", 3); ++i) {
      for (const double multiple : rates) {
        limit(multiple);
        const Sample sample = measure();
        if (i > 0) samples[multiple].push_back(sample);  // the first round warms up
      }
    }
    for (const double multiple : rates) print(multiple, samples[multiple]);
  }

 private:
  struct Sample {
    double seconds, waited;
  };

  double& rate() { return pass_ == Pass::forward ? machine_.forward : machine_.backward; }

  /// The speed of the kernels on the rank's pieces, without messages.
  void measure_kernels() {
    const Tensor k = normal({1, division_.rows.length(), dim_}, 100);
    double best = 1e300, operations = 0.0;
    for (int rank = 0; rank < mpi_.size(); ++rank)
      operations = std::max(operations, operations_of(plan_, pass_, rank, 0));
    for (int sample = 0; sample < 5; ++sample) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double own = seconds_of([&] { compute_pieces(k); });
      best = std::min(best, most_of_ranks(own));
    }
    rate() = operations / best;
  }

  void compute_pieces(const Tensor& k) {
    Tensor dkv(DType::f32, k.shape());
    for (const auto& piece : plan_.pieces(mpi_.rank(), 0)) {
      const std::int64_t row = division_.rows.local_row(mpi_.rank(), piece.rows.begin);
      const auto rows = [&](const auto& view) {
        return view.slice(0, 0, 1).slice(1, row, row + piece.rows.size());
      };
      const TensorView keys = k.view().slice(1, piece.keys.begin, piece.keys.end);
      const MutableTensorView dkeys = dkv.mutable_view().slice(1, piece.keys.begin, piece.keys.end);
      const AttentionOptions options{.causal = Causal::top_left,
                                     .query_offset = piece.row - piece.key,
                                     .lse = rows(lse_.mutable_view()),
                                     .num_threads = threads()};
      if (pass_ == Pass::forward)
        attention(rows(inputs_[0].view()), keys, keys, rows(results_[0].mutable_view()), options);
      else
        attention_backward(
            rows(inputs_[0].view()), keys, keys,
            {rows(results_[0].view()), rows(lse_.view()), rows(inputs_[3].view()), {}},
            {rows(results_[1].mutable_view()), dkeys, dkeys, {}, {}, {}},
            {.causal = Causal::top_left, .query_offset = piece.row - piece.key, .num_threads = threads()});
    }
  }

  int threads() const { return static_cast<int>(settings_.number("--threads", 1)); }

  double bandwidth(double multiple) const { return multiple > 0.0 ? multiple * needed_ : 5e9; }

  void limit(double multiple) const {
    constexpr double kFrame = 1514.0 / 1448.0;  // bytes of an Ethernet frame by what it carries over TCP
    const std::string device = settings_.text("--device", "");
    if (device.empty()) return;
    const std::string command = "tc qdisc replace dev " + device + " root tbf rate " +
                                std::to_string(static_cast<std::int64_t>(8 * kFrame * bandwidth(multiple))) +
                                "bit burst 256kb latency 200ms";
    if (std::system(command.c_str()) != 0) std::printf("failed: %s\n", command.c_str());
  }

  Sample measure() {
    const AttentionOptions options{.causal = Causal::top_left, .lse = lse_, .num_threads = threads()};
    const Tensor &q = inputs_[0], &k = inputs_[1], &v = inputs_[2], &dout = inputs_[3];
    Tensor &o = results_[0], &dq = results_[1], &dk = results_[2], &dv = results_[3];
    MPI_Barrier(MPI_COMM_WORLD);
    communicator_.waited = 0.0;
    const double own = seconds_of([&] {
      if (pass_ == Pass::forward)
        distributed::attention(communicator_, q, k, v, o, division_, options);
      else
        distributed::attention_backward(communicator_, q, k, v, {o, lse_, dout, {}}, {dq, dk, dv, {}, {}, {}},
                                        division_, {.causal = Causal::top_left, .num_threads = threads()});
    });
    const double waited = most_of_ranks(communicator_.waited);
    return {most_of_ranks(own), waited};
  }

  void print(double multiple, std::vector<Sample> samples) {
    if (mpi_.rank() > 0 || samples.empty()) return;
    machine_.bandwidth = bandwidth(multiple);
    const distributed::Estimate estimate = distributed::estimate(plan_, pass_, machine_);
    std::ranges::sort(samples, {}, &Sample::seconds);
    const Sample &best = samples.front(), &median = samples[samples.size() / 2];
    double transfer = 0.0, waiting = 0.0;
    for (const distributed::Cost& cost : estimate.ranks) {
      transfer = std::max(transfer, cost.transfer);
      waiting = std::max(waiting, cost.waiting);
    }
    std::printf(
        "%.2f Gbit/s: best %.3f s, median %.3f; model %.3f (%+.1f %%); transfer %.3f s, waited %.3f s of the "
        "best, "
        "%.3f of the median (model %.3f): %.1f %% and %.1f %% hidden\n",
        8e-9 * machine_.bandwidth, best.seconds, median.seconds, estimate.total,
        100 * (estimate.total / median.seconds - 1), transfer, best.waited, median.waited, waiting,
        100 * (1 - best.waited / transfer), 100 * (1 - median.waited / transfer));
  }

  const Settings& settings_;
  mpi::Communicator mpi_;
  WatchedCommunicator communicator_;
  Pass pass_;
  std::int64_t heads_, dim_;
  distributed::ParallelConfig division_;
  distributed::Plan plan_;
  distributed::CostParameters machine_;
  double needed_ = 0.0;
  std::array<Tensor, 4> inputs_, results_;  // q, k, v, dout; o, dq, dk, dv
  Tensor lse_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    settings.given[name] = i + 1 < argc && argv[i + 1][0] != '-' ? argv[++i] : "";
  }
  HidingBench(settings).run();
  MPI_Finalize();
}
