// saccade run --distributed: each rank maps its rows of the files; rank 0 writes the result.
#include <fmt/format.h>
#include <saccade/distributed.h>
#include <saccade/io.h>
#include <saccade/operations.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "cases/key_rows.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "run.h"

namespace saccade::cli {
namespace {

using distributed::Method;
using distributed::ParallelConfig;
using distributed::Run;
using distributed::Sharding;

constexpr std::array kMethods{Method::automatic, Method::gather, Method::heads, Method::grid,
                              Method::stream,    Method::ring,   Method::pass_q};

/// As the command line has it.
std::string text_of(Method method) {
  std::string name(name_of(method));
  std::ranges::replace(name, '_', '-');
  return name;
}

Method method_of(const std::string& name) { return *std::ranges::find(kMethods, name, text_of); }

/// One run of keys for each rank, cut where decode() cuts, so that the result has the bits of one process.
Sharding sharding_of_decode(std::int64_t keys, int ranks) {
  const std::int64_t pieces = (keys + kOriginAlignment - 1) / kOriginAlignment;
  std::vector<std::vector<Run>> runs;
  for (int rank = 0; rank < ranks; ++rank)
    runs.push_back({{std::min(pieces * rank / ranks * kOriginAlignment, keys),
                     std::min(pieces * (rank + 1) / ranks * kOriginAlignment, keys)}});
  return Sharding::of_runs(std::move(runs));
}

/// Writes a result whose rows are sharded over the ranks to a file on rank 0, in the order of the file.
class ResultFile {
 public:
  ResultFile(Ranks& ranks, const std::string& path, DType dtype, const Shape& shape)
      : ranks_(ranks), width_(size_of(dtype)) {
    agree(ranks, [&] {
      if (ranks.rank() == 0) writer_.emplace(path, dtype, shape);
    });
  }

  /// For an array of this shape, sharded along dimension `axis`; `own` is this rank's shard, contiguous.
  void write(const Shape& shape, int axis, const Sharding& sharding, const Tensor& own) {
    struct Held {
      Run run;
      int rank;
    };
    std::vector<Held> runs;
    for (int rank = 0; rank < ranks_.size(); ++rank)
      for (const Run& run : sharding.runs(rank)) runs.push_back({run, rank});
    std::ranges::sort(runs, {}, [](const Held& held) { return held.run.begin; });
    std::int64_t outer = 1, row = static_cast<std::int64_t>(width_);  // bytes of a row
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (static_cast<int>(i) < axis) outer *= shape[i];
      if (static_cast<int>(i) > axis) row *= shape[i];
    }
    const auto* const begin = static_cast<const std::byte*>(own.data());
    const std::int64_t rows = sharding.rows(ranks_.rank());
    for (std::int64_t i = 0; i < outer; ++i)
      for (const auto& [run, rank] : runs) {
        const bool is_own = rank == ranks_.rank();
        const std::int64_t at = is_own ? i * rows + sharding.local_row(rank, run.begin) : 0;
        write_run(rank, is_own ? begin + at * row : nullptr, run.size() * row);
      }
  }

  /// Completes the file, or throws on every rank.
  void commit() {
    agree(ranks_, [&] {
      if (error_) std::rethrow_exception(error_);
      if (writer_) writer_->commit();
    });
  }

  void write_own(std::span<const std::byte> bytes) {
    if (!writer_ || error_) return;
    try {
      writer_->write(bytes);
    } catch (...) {
      error_ = std::current_exception();  // the others still send
    }
  }

 private:
  void write_run(int rank, const std::byte* own, std::int64_t bytes) {
    constexpr std::int64_t kMost = std::int64_t{16} << 20;
    for (std::int64_t at = 0; at < bytes; at += kMost) {
      const auto size = static_cast<std::size_t>(std::min(kMost, bytes - at));
      if (ranks_.rank() == 0 && rank == 0) {
        write_own({own + at, size});
      } else if (ranks_.rank() == 0) {
        received_.resize(size);
        wait(ranks_.communicator.receive(rank, received_.data(), size));
        write_own(received_);
      } else if (own != nullptr) {
        wait(ranks_.communicator.send(0, own + at, size));
      }
    }
  }

  void wait(distributed::Communicator::Request request) {
    const auto until = std::chrono::steady_clock::now() + ranks_.communicator.timeout();
    distributed::wait(ranks_.communicator, {request}, until);
  }

  Ranks& ranks_;
  std::size_t width_;
  std::optional<NpyWriter> writer_;  // on rank 0
  std::vector<std::byte> received_;
  std::exception_ptr error_;
};

class DistributedRun {
 public:
  DistributedRun(const RunArguments& arguments, Ranks& ranks) : arguments_(arguments), ranks_(ranks) {}

  ExitCode run() {
    agree(ranks_, [&] { load(); });
    compute();
    if (arguments_.decode) {
      write_whole(arguments_.out, o_);
      write_whole(arguments_.lse, lse_);
    } else {
      write(arguments_.out, o_, call_->sequence_axis(), shape_of_o());
      const Shape rows = call_->rows_shape();
      write(arguments_.lse, lse_, static_cast<int>(rows.size()) - 1, rows);
    }
    if (ranks_.rank() == 0) report();
    return kGood;
  }

 private:
  void load() {
    const std::vector<NamedPath> inputs = arguments_.call.inputs();
    for (const NamedPath& input : inputs)
      if (input.path == "-")
        refuse("{}: with --distributed every process reads the file, not standard input", input.option);
    if (ranks_.rank() == 0) require_writable({arguments_.out, arguments_.lse}, inputs);
    call_ = load_call(arguments_.call, Loading::mapped);
    if (call_->options.block_table) refuse("--block-table: pages are not divided; run it in one process");
    if (call_->options.num_threads == 0) call_->options.num_threads = ranks_.threads;
    divide();
    q_ = arguments_.decode ? part(call_->q, arguments_.call.q, {{0, length(call_->q)}})
                           : part(call_->q, arguments_.call.q, division_.rows.runs(ranks_.rank()));
    k_ = part(call_->k, arguments_.call.k, division_.keys.runs(ranks_.rank()));
    v_ = part(call_->v, arguments_.call.v, division_.keys.runs(ranks_.rank()));
    Shape shape(q_.dims().begin(), q_.dims().end());
    shape.back() = v_.dims().back();
    o_ = Tensor(q_.dtype, shape);
    if (!arguments_.lse.path) return;
    shape = call_->rows_shape();
    if (!arguments_.decode) shape.back() = division_.rows.rows(ranks_.rank());
    lse_ = Tensor(q_.dtype == DType::f64 ? DType::f64 : DType::f32, shape);
    call_->options.lse = lse_;
  }

  std::int64_t length(const TensorView& tensor) const { return tensor.shape[call_->sequence_axis()]; }

  void divide() {
    const std::int64_t rows = length(call_->q), keys = length(call_->k);
    const int size = ranks_.size();
    division_.method = method_of(arguments_.method);
    if ((division_.method == Method::grid) != arguments_.head_groups.has_value())
      refuse("--head-groups belongs to --method grid: both or neither");
    division_.head_groups = static_cast<int>(std::min<std::int64_t>(arguments_.head_groups.value_or(0), 1 << 20));
    if (arguments_.decode) {
      division_.rows = Sharding::contiguous(rows, size);
      division_.keys = sharding_of_decode(keys, size);
      return;
    }
    division_.keys = Sharding::contiguous(keys, size);
    if (arguments_.sharding == "contiguous") division_.rows = Sharding::contiguous(rows, size);
    if (arguments_.sharding == "zigzag") division_.rows = Sharding::zigzag(rows, size);
    if (arguments_.sharding == "striped") division_.rows = Sharding::striped(rows, size);
    if (arguments_.sharding == "balanced") division_.rows = Sharding::balanced(rows, keys, size, call_->options);
  }

  /// Some rows of a file: a view of the mapped file if they are contiguous and keep their type.
  TensorView part(const TensorView& whole, const NamedPath& input, const std::vector<Run>& runs) {
    const int axis = call_->sequence_axis();
    const bool converts = arguments_.call.dtype && is_floating(whole.dtype);
    const DType dtype = converts ? dtype_from_name(*arguments_.call.dtype) : whole.dtype;
    if (dtype == whole.dtype && runs.size() == 1) return whole.slice(axis, runs[0].begin, runs[0].end);
    if (dtype != whole.dtype)
      call_->notes.push_back(
          fmt::format("{} is {}, converted to {}", input.option, name_of(whole.dtype), name_of(dtype)));
    Shape shape(whole.dims().begin(), whole.dims().end());
    std::int64_t& rows = shape[static_cast<std::size_t>(axis)] = 0;
    for (const Run& run : runs) rows += run.size();
    Tensor& copied = call_->tensors.emplace_back(Tensor::uninitialized(dtype, shape));
    std::int64_t at = 0;
    for (const Run& run : runs) {
      copy(whole.slice(axis, run.begin, run.end), copied.mutable_view().slice(axis, at, at + run.size()));
      at += run.size();
    }
    return copied;
  }

  void compute() {
    std::optional<ProgressBar> progress;
    if (ranks_.rank() == 0)
      division_.on_step = [&](std::int64_t done, std::int64_t steps) {
        if (!progress) progress.emplace(steps);
        progress->show(done, "computing");
      };
    std::vector<std::pair<std::int64_t, std::int64_t>> keys;
    for (const Run& run : division_.keys.runs(ranks_.rank())) keys.emplace_back(run.begin, run.end);
    AttentionOptions options = call_->options;
    const cases::ScalesOfRows scales(options, keys);
    const auto start = std::chrono::steady_clock::now();
    if (arguments_.decode)
      distributed::decode(ranks_.communicator, q_, k_, v_, o_, division_, options);
    else
      distributed::attention(ranks_.communicator, q_, k_, v_, o_, division_, options);
    division_.on_step = {};
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Shape shape_of_o() const {
    Shape shape(call_->q.dims().begin(), call_->q.dims().end());
    shape.back() = call_->v.dims().back();
    return shape;
  }

  void write(const NamedPath& path, const Tensor& own, int axis, const Shape& shape) {
    if (!path.path) return;
    const Tensor stored = as_stored(own);
    ResultFile file(ranks_, *path.path, stored.dtype(), shape);
    file.write(shape, axis, division_.rows, stored);
    file.commit();
  }

  /// Of decode(), every rank has the whole result.
  void write_whole(const NamedPath& path, const Tensor& result) {
    if (!path.path) return;
    agree(ranks_, [&] {
      if (ranks_.rank() == 0) save_npy(*path.path, as_stored(result));
    });
  }

  /// .npy has no bf16 type.
  Tensor as_stored(const Tensor& result) {
    if (result.dtype() != DType::bf16) return result;
    call_->notes.push_back("o is bf16, written as f32: .npy has no bf16");
    return Tensor::copy_of(result, DType::f32);
  }

  void report() const {
    for (const std::string& text : call_->notes) note("run", text);
    const double gflops = attention_operations(call_->q, call_->k, call_->v, call_->options) / seconds_ * 1e-9;
    const std::string method = arguments_.decode ? "decode" : text_of(picked_method());
    const int threads = call_->threads();
    note("run",
         fmt::format("q {} {} k {} v {} -> o {} {} in {}, {:.3g} GFLOP/s ({}, {} {} of {} {}, {})",
                     name_of(q_.dtype), to_string(call_->q.dims()), to_string(call_->k.dims()),
                     to_string(call_->v.dims()), name_of(o_.dtype()), to_string(shape_of_o()), duration(seconds_),
                     gflops, name_of(active_isa()), ranks_.size(), ranks_.size() == 1 ? "rank" : "ranks", threads,
                     threads == 1 ? "thread" : "threads", method));
    if (!arguments_.json) return;
    print_json({{"shape", shape_of_o()},
                {"dtype", std::string(name_of(o_.dtype()))},
                {"seconds", seconds_},
                {"gflops", gflops},
                {"isa", std::string(name_of(active_isa()))},
                {"threads", threads},
                {"ranks", ranks_.size()},
                {"method", method}});
  }

  Method picked_method() const {
    const distributed::Sizes sizes = distributed::sizes_of(call_->q, call_->k, call_->v, call_->options);
    return distributed::Plan(sizes, division_, call_->options).division().method;
  }

  const RunArguments& arguments_;
  Ranks& ranks_;
  std::unique_ptr<Call> call_;
  ParallelConfig division_;
  TensorView q_, k_, v_;  // of this rank
  Tensor o_, lse_;
  double seconds_ = 0.0;
};

}  // namespace

ExitCode run_distributed(const RunArguments& arguments) {
  for (const NamedPath* output : {&arguments.weights, &arguments.scores})
    if (output->path) refuse("{} cannot be combined with --distributed", output->option);
  if (arguments.check)
    refuse("--check cannot be combined with --distributed; saccade check --distributed compares");
  return with_ranks("run", arguments.ranks, [&](Ranks& ranks) { return DistributedRun(arguments, ranks).run(); });
}

}  // namespace saccade::cli
