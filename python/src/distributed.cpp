// Distributed attention: shardings, communicators that call Python, and a rank's calls.
#include "saccade/distributed.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <deque>
#include <map>

#include "array.h"
#include "bind.h"
#include "options.h"
#include "saccade/backward.h"

namespace saccade::python {
namespace {

using distributed::CommunicationError;
using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Sharding;

/// A communicator whose messages a Python object carries: python/saccade/_communicators.py describes its methods.
class PythonCommunicator : public Communicator {
 public:
  explicit PythonCommunicator(nb::object transport)
      : send_(transport.attr("send")),
        receive_(transport.attr("receive")),
        is_finished_(transport.attr("is_finished")),
        make_progress_(nb::getattr(transport, "make_progress", nb::none())),
        rank_(static_cast<int>(integer(transport.attr("rank")(), "rank()"))),
        size_(static_cast<int>(integer(transport.attr("size")(), "size()"))) {
    if (size_ < 1 || rank_ < 0 || rank_ >= size_)
      refuse("comm",
             "expected 0 <= rank() < size(), got rank " + std::to_string(rank_) + " of " + std::to_string(size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Request send(int to, const void* data, std::size_t bytes) override {
    return begin(send_, to, const_cast<void*>(data), bytes);
  }
  Request receive(int from, void* data, std::size_t bytes) override { return begin(receive_, from, data, bytes); }

  bool is_finished(Request request) override {
    return call([&] {
      const auto found = requests_.find(request);
      const bool finished = nb::cast<bool>(nb::bool_(is_finished_(found->second)));
      if (finished) requests_.erase(found);
      return finished;
    });
  }

  void make_progress() override {
    if (is_callable_) call([&] { return make_progress_().is_valid(); });
  }

  /// The exception behind the last CommunicationError, or nothing.
  nb::object take_cause() { return std::exchange(cause_, nb::object()); }

 private:
  Request begin(const nb::object& method, int other, void* data, std::size_t bytes) {
    return call([&] {
      // Writable even to send from: PyTorch warns of memory that is not.
      const nb::object view = nb::steal(
          PyMemoryView_FromMemory(static_cast<char*>(data), static_cast<Py_ssize_t>(bytes), PyBUF_WRITE));
      requests_[++last_] = method(other, view);
      return last_;
    });
  }

  template <class Call>
  std::invoke_result_t<Call> call(const Call& f) {
    const nb::gil_scoped_acquire gil;
    try {
      return f();
    } catch (nb::python_error& error) {
      cause_ = nb::borrow(error.value());
      const std::string message = text_of(cause_);
      throw CommunicationError(message.empty() ? kind_of(cause_) : message);
    }
  }

  nb::object send_, receive_, is_finished_, make_progress_;
  bool is_callable_ = !make_progress_.is_none();  // read without the GIL
  int rank_, size_;
  Request last_ = 0;
  std::map<Request, nb::object> requests_;
  nb::object cause_;
};

PyObject* communication_error = nullptr;  // the type; lives as long as the interpreter

/// A communicator that Python holds. One call at a time: another, of a second thread or of a score_mod, is an
/// error.
class HeldCommunicator {
 public:
  explicit HeldCommunicator(std::unique_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}
  explicit HeldCommunicator(nb::object transport) {
    auto python = std::make_unique<PythonCommunicator>(std::move(transport));
    python_ = python.get();
    communicator_ = std::move(python);
  }

  Communicator& get() { return *communicator_; }

  /// f(), which throws only if memory runs out; the other ranks cannot know, so the communicator then has failed.
  template <class F>
  std::invoke_result_t<F> alone(const F& f) {
    try {
      return f();
    } catch (...) {
      communicator_->fail("memory ran out", {});
      throw;
    }
  }

  /// f(communicator) without the GIL.
  template <class Call>
  void call(const Call& f) {
    if (is_busy_.exchange(true)) throw std::runtime_error("the communicator is in use by another call");
    const struct Free {
      ~Free() { is_busy = false; }
      std::atomic<bool>& is_busy;
    } free{is_busy_};
    try {
      const nb::gil_scoped_release unlocked;
      f(*communicator_);
    } catch (const CommunicationError& error) {
      raise_with_cause(error);
      throw;
    }
  }

 private:
  /// Raises the error with Python's as its cause, if there is one; KeyboardInterrupt and the like as they are.
  void raise_with_cause(const CommunicationError& error) {
    nb::object cause = python_ ? python_->take_cause() : nb::object();
    if (!cause.is_valid()) return;
    if (PyObject_IsInstance(cause.ptr(), PyExc_Exception) == 1) {
      const nb::object raised = nb::handle(communication_error)(nb::str(error.what()));
      PyException_SetCause(raised.ptr(), cause.release().ptr());
      cause = raised;
    }
    PyErr_SetObject(cause.type().ptr(), cause.ptr());
    throw nb::python_error();
  }

  std::unique_ptr<Communicator> communicator_;
  PythonCommunicator* python_ = nullptr;
  std::atomic<bool> is_busy_ = false;
};

/// Every rank gives as many bytes; all get those of all ranks in order.
std::vector<nb::bytes> exchange(HeldCommunicator& held, const nb::bytes& own) {
  const auto size = static_cast<std::size_t>(held.get().size());
  const auto all = held.alone([&] { return std::make_shared<std::vector<char>>(own.size() * size); });
  held.call([&](Communicator& communicator) {
    if (!communicator.failure().empty())
      throw CommunicationError("the communicator failed before: " + communicator.failure());
    std::vector<std::shared_ptr<void>> memory{all};  // of unfinished messages
    try {
      communicator.all_gather(own.data(), all->data(), own.size(),
                              std::chrono::steady_clock::now() + communicator.timeout());
    } catch (const CommunicationError& error) {
      const std::string text = "rank " + std::to_string(communicator.rank()) +
                               ", waiting for the arguments of other ranks: " + error.what();
      communicator.fail(text, std::move(memory));
      throw CommunicationError(text);
    } catch (...) {
      communicator.fail("an exception", std::move(memory));
      throw;
    }
  });
  return held.alone([&] {
    std::vector<nb::bytes> result;
    for (std::size_t rank = 0; rank < size; ++rank)
      result.emplace_back(all->data() + rank * own.size(), own.size());
    return result;
  });
}

void fail(HeldCommunicator& held, const std::string& why) { held.get().fail(why, {}); }

void set_timeout(HeldCommunicator& held, nb::handle timeout) {
  const double seconds = number(timeout, "timeout");
  constexpr double kMost = 1e9;  // seconds, 30 years: fits in nanoseconds
  if (!(seconds > 0)) refuse("timeout", "expected a positive number of seconds, got " + shown(timeout));
  held.get().set_timeout(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kMost))));
}

ParallelConfig make_division(nb::handle method, nb::handle head_groups, nb::handle chunk, nb::handle exact) {
  ParallelConfig division{
      .head_groups = static_cast<int>(std::clamp<std::int64_t>(integer(head_groups, "head_groups"), -1, 1 << 30)),
      .chunk = integer(chunk, "chunk"),
      .exact = boolean(exact, "exact")};
  std::string wanted;
  for (int i = 0; i <= static_cast<int>(Method::pass_q); ++i) {
    const std::string name(name_of(static_cast<Method>(i)));
    if (PyUnicode_Check(method.ptr()) && text_of(method) == name) {
      division.method = static_cast<Method>(i);
      return division;
    }
    wanted += (wanted.empty() ? "'" : ", '") + name + "'";
  }
  refuse("method", "expected one of " + wanted + ", got " + shown(method));
}

/// A rank's arguments. Reading them may throw, so they are read before the ranks agree on a call.
class Arguments {
 public:
  Arguments(nb::handle q, nb::handle k, nb::handle v, const nb::dict& given)
      : q_(q, "q"), k_(k, "k"), v_(v, "v"), options_(given) {
    for (Array* array : {&q_, &k_, &v_}) array->make_rows_contiguous();
  }

  /// `seed`: that of the dropout, if the options have none. No keys: as the rows.
  template <class Call>
  void run(HeldCommunicator& held, const ParallelConfig& given, const Sharding& rows, const Sharding* keys,
           nb::handle seed_of_rank_0, const Call& f) {
    const ParallelConfig division = held.alone([&] {
      ParallelConfig whole = given;
      whole.rows = rows;
      whole.keys = keys ? *keys : Sharding();
      if (!seed_of_rank_0.is_none()) options_.value.dropout_seed = seed(seed_of_rank_0);
      return whole;
    });
    held.call([&](Communicator& communicator) { f(communicator, division); });
  }

  /// Throws the exception of the score modifier, if there was one.
  void rethrow() const { options_.rethrow(); }

 protected:
  Array q_, k_, v_;
  Options options_;
};

class ForwardArguments : public Arguments {
 public:
  ForwardArguments(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, const nb::dict& given)
      : Arguments(q, k, v, given), o_(out, "out"), lse_(lse, "lse") {
    options_.require_apart(o_, {{"q", &q_}, {"k", &k_}, {"v", &v_}});
    options_.value.lse = lse_.view();
  }

  /// `function`: distributed::attention or decode.
  template <auto function>
  void run(HeldCommunicator& held, const ParallelConfig& division, const Sharding& rows, const Sharding* keys,
           nb::handle seed) {
    Arguments::run(held, division, rows, keys, seed, [&](Communicator& communicator, const ParallelConfig& whole) {
      function(communicator, q_.view(), k_.view(), v_.view(), o_.view(), whole, options_.value);
      o_.finish();
    });
  }

 private:
  Result o_, lse_;
};

class BackwardArguments : public Arguments {
 public:
  /// `others`: the arrays that kOptionGradients names, or None.
  BackwardArguments(nb::handle q, nb::handle k, nb::handle v, nb::handle o, nb::handle lse, nb::handle dout,
                    nb::handle dlse, nb::handle dq, nb::handle dk, nb::handle dv, const nb::dict& others,
                    const nb::dict& given)
      : Arguments(q, k, v, given),
        o_(o, "o"),
        lse_(lse, "lse"),
        dout_(dout, "dout"),
        dlse_(Array::optional(dlse, "dlse")),
        dq_(dq, "dq"),
        dk_(dk, "dk"),
        dv_(dv, "dv") {
    for (Array* array : {&o_, &dout_}) array->make_rows_contiguous();
    gradients_ = {.dq = dq_.view(), .dk = dk_.view(), .dv = dv_.view()};
    for (const auto& gradient : kOptionGradients<MutableTensorView>) {
      const nb::str name(gradient.name.data(), gradient.name.size());
      if (!others.contains(name)) continue;
      gradients_.*gradient.gradient = others_.emplace_back(others[name], gradient.name).view();
    }
  }

  void run(HeldCommunicator& held, const ParallelConfig& division, const Sharding& rows, const Sharding* keys,
           nb::handle seed) {
    Arguments::run(held, division, rows, keys, seed, [&](Communicator& communicator, const ParallelConfig& whole) {
      const AttentionOutcome outcome{
          .o = o_.view(), .lse = lse_.view(), .dout = dout_.view(), .dlse = dlse_.view()};
      distributed::attention_backward(communicator, q_.view(), k_.view(), v_.view(), outcome, gradients_, whole,
                                      options_.value);
      for (Result* result : {&dq_, &dk_, &dv_}) result->finish();
      for (Result& result : others_) result.finish();
    });
  }

 private:
  Array o_, lse_, dout_, dlse_;
  Result dq_, dk_, dv_;
  std::deque<Result> others_;
  AttentionGradients gradients_;
};

using Runs = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;

Sharding sharding_of(const Runs& given) {
  std::vector<std::vector<distributed::Run>> runs;
  for (const auto& of_rank : given) {
    runs.emplace_back();
    for (const auto& [begin, end] : of_rank) runs.back().push_back({begin, end});
  }
  return Sharding::of_runs(std::move(runs));
}

Runs runs_of(const Sharding& sharding) {
  Runs runs;
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    runs.emplace_back();
    for (const distributed::Run& run : sharding.runs(rank)) runs.back().emplace_back(run.begin, run.end);
  }
  return runs;
}

int ranks_of(nb::handle ranks) {
  return static_cast<int>(std::clamp<std::int64_t>(integer(ranks, "ranks"), -1, 1 << 20));
}

void bind_sharding(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Sharding>(module, "Sharding")
      .def(
          "__init__", [](Sharding* self, const Runs& runs) { new (self) Sharding(sharding_of(runs)); }, "runs"_a)
      .def_static(
          "contiguous",
          [](nb::handle length, nb::handle ranks) {
            return Sharding::contiguous(integer(length, "length"), ranks_of(ranks));
          },
          "length"_a.none(), "ranks"_a.none())
      .def_static(
          "zigzag",
          [](nb::handle length, nb::handle ranks) {
            return Sharding::zigzag(integer(length, "length"), ranks_of(ranks));
          },
          "length"_a.none(), "ranks"_a.none())
      .def_static(
          "striped",
          [](nb::handle length, nb::handle ranks, nb::handle stripe) {
            return Sharding::striped(integer(length, "length"), ranks_of(ranks), integer(stripe, "stripe"));
          },
          "length"_a.none(), "ranks"_a.none(), "stripe"_a.none())
      .def_static(
          "balanced",
          [](nb::handle seqlen_q, nb::handle seqlen_k, nb::handle ranks, const nb::dict& given) {
            const Options options(given);
            return Sharding::balanced(integer(seqlen_q, "seqlen_q"), integer(seqlen_k, "seqlen_k"),
                                      ranks_of(ranks), options.value);
          },
          "seqlen_q"_a.none(), "seqlen_k"_a.none(), "ranks"_a.none(), "options"_a)
      .def("ranks", &Sharding::ranks)
      .def("length", &Sharding::length)
      .def("runs", &runs_of);
}

}  // namespace

void bind_distributed(nb::module_& module) {
  using namespace nb::literals;
  static const nb::exception<CommunicationError> error(module, "CommunicationError", PyExc_RuntimeError);
  communication_error = error.ptr();
  bind_sharding(module);

  nb::class_<HeldCommunicator>(module, "Communicator")
      .def(nb::init<nb::object>(), "transport"_a)
      .def("rank", [](HeldCommunicator& held) { return held.get().rank(); })
      .def("size", [](HeldCommunicator& held) { return held.get().size(); })
      .def("failure", [](HeldCommunicator& held) { return held.get().failure(); })
      .def("set_timeout", &set_timeout, "timeout"_a.none())
      .def("fail", &fail, "why"_a)
      .def("exchange", &exchange, "own"_a);
  module.def(
      "local_communicators",
      [](nb::handle ranks) {
        nb::list result;
        for (std::unique_ptr<Communicator>& one : distributed::local_communicators(ranks_of(ranks)))
          result.append(nb::cast(new HeldCommunicator(std::move(one)), nb::rv_policy::take_ownership));
        return result;
      },
      "ranks"_a.none());

  nb::class_<ParallelConfig>(module, "ParallelConfig")
      .def(
          "__init__",
          [](ParallelConfig* self, nb::handle method, nb::handle head_groups, nb::handle chunk, nb::handle exact) {
            new (self) ParallelConfig(make_division(method, head_groups, chunk, exact));
          },
          "method"_a.none(), "head_groups"_a.none(), "chunk"_a.none(), "exact"_a.none());
  nb::class_<Arguments>(module, "DistributedArguments").def("rethrow", &Arguments::rethrow);
  nb::class_<ForwardArguments, Arguments>(module, "DistributedForward")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, const nb::dict&>(), "q"_a.none(),
           "k"_a.none(), "v"_a.none(), "out"_a.none(), "lse"_a.none(), "options"_a)
      .def("run", &ForwardArguments::run<&distributed::attention>, "communicator"_a, "division"_a, "rows"_a,
           "keys"_a.none(), "seed"_a.none())
      .def("decode", &ForwardArguments::run<&distributed::decode>, "communicator"_a, "division"_a, "rows"_a,
           "keys"_a.none(), "seed"_a.none());
  nb::class_<BackwardArguments, Arguments>(module, "DistributedBackward")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle,
                    nb::handle, nb::handle, const nb::dict&, const nb::dict&>(),
           "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(), "lse"_a.none(), "dout"_a.none(),
           "dlse"_a.none(), "dq"_a, "dk"_a, "dv"_a, "others"_a, "options"_a)
      .def("run", &BackwardArguments::run, "communicator"_a, "division"_a, "rows"_a, "keys"_a.none(),
           "seed"_a.none());
}

}  // namespace saccade::python
