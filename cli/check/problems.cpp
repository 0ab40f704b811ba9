#include "problems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "cases/caches/cache_case.h"
#include "cases/conformance.h"
#include "cases/divided_case.h"
#include "cases/gradient_case.h"
#include "cases/inspection_case.h"
#include "cases/local_ranks.h"
#include "cases/options.h"
#include "cases/random_case.h"

namespace saccade::cli {
namespace {

/// A call of attention, with what checks it.
template <class Checks>
class CallProblem : public DrawnProblem {
 public:
  template <class MakeChecks>
  CallProblem(cases::AttentionCase drawn, const MakeChecks& make)
      : case_(std::move(drawn)), checks_(make(case_)) {}

  std::string describe() const override { return cases::describe(case_); }
  std::vector<std::string> options() const override { return cases::names_of_set(case_.options); }

 protected:
  cases::AttentionCase case_;
  std::unique_ptr<Checks> checks_;
};

class ForwardProblem : public CallProblem<cases::CheckedCase> {
 public:
  explicit ForwardProblem(cases::AttentionCase drawn, std::vector<reference::RowIndex> rows = {})
      : CallProblem(std::move(drawn), [&](cases::AttentionCase& c) {
          return std::make_unique<cases::CheckedCase>(c, std::move(rows));
        }) {}
  std::vector<cases::Finding> run() override { return checks_->run(); }
};

class BackwardProblem : public CallProblem<cases::CheckedGradients> {
 public:
  BackwardProblem(cases::AttentionCase drawn, std::uint64_t seed)
      : CallProblem(std::move(drawn),
                    [&](cases::AttentionCase& c) { return std::make_unique<cases::CheckedGradients>(c, seed); }) {}
  std::vector<cases::Finding> run() override { return checks_->run(); }
};

class StatesProblem : public CallProblem<cases::CheckedCase> {
 public:
  StatesProblem(cases::AttentionCase drawn, std::uint64_t seed)
      : CallProblem(std::move(drawn),
                    [](cases::AttentionCase& c) { return std::make_unique<cases::CheckedCase>(c); }),
        seed_(seed) {}
  std::vector<cases::Finding> run() override { return cases::run_conformance(case_, *checks_, seed_); }

 private:
  std::uint64_t seed_;
};

class InspectProblem : public CallProblem<cases::CheckedInspection> {
 public:
  InspectProblem(cases::AttentionCase drawn, std::uint64_t seed)
      : CallProblem(std::move(drawn), [&](cases::AttentionCase& c) {
          cases::make_inspection(c);
          return std::make_unique<cases::CheckedInspection>(std::as_const(c.q).view(), std::as_const(c.k).view(),
                                                            cases::draw_inspection(c, seed), c.options);
        }) {}
  std::vector<cases::Finding> run() override { return checks_->run(); }
};

class CacheProblem : public DrawnProblem {
 public:
  CacheProblem(std::uint64_t seed, const cases::Simplification& simpler) : case_(seed, simpler) {}

  std::vector<cases::Finding> run() override { return case_.run(); }
  std::string describe() const override { return case_.describe(); }
  std::vector<std::string> options() const override { return case_.options(); }

 private:
  cases::CacheCase case_;
};

class DividedProblem : public DrawnProblem {
 public:
  DividedProblem(std::uint64_t seed, const cases::Simplification& simpler) : seed_(seed), simpler_(simpler) {}

  std::vector<cases::Finding> run() override {
    constexpr std::uint64_t kMostRanks = 5;
    const auto body = [&](distributed::Communicator& communicator) {
      std::string problem;
      const auto lines = cases::compare_divided(communicator, seed_, problem, simpler_);
      if (communicator.rank() == 0) problem_ = problem;
      if (!lines.empty()) throw std::runtime_error(fmt::format("{}", fmt::join(lines, "; ")));
    };
    const auto ranks = static_cast<int>(2 + seed_ % (kMostRanks - 1));
    for (const std::string& error : cases::on_local_ranks(ranks, body))
      if (!error.empty()) throw std::runtime_error(error);
    cases::Finding agreed{"all results of a divided call", {}};
    agreed.comparison.elements = 1;
    return {agreed};
  }
  std::string describe() const override { return problem_; }
  std::vector<std::string> options() const override {
    return cases::names_of_set(cases::draw_case(seed_, simpler_).options);
  }

 private:
  std::uint64_t seed_;
  cases::Simplification simpler_;
  std::string problem_;
};

}  // namespace

std::optional<ProblemKind> problem_kind(std::string_view name) {
  const auto found = std::ranges::find(kProblemKinds, name);
  if (found == kProblemKinds.end()) return std::nullopt;
  return static_cast<ProblemKind>(found - kProblemKinds.begin());
}

std::unique_ptr<DrawnProblem> draw_problem(ProblemKind kind, std::uint64_t seed,
                                           const cases::Simplification& simpler,
                                           std::optional<std::int64_t> threads) {
  if (kind == ProblemKind::caches) return std::make_unique<CacheProblem>(seed, simpler);
  if (kind == ProblemKind::divided) return std::make_unique<DividedProblem>(seed, simpler);
  cases::AttentionCase drawn = cases::draw_case(seed, simpler);
  if (threads) drawn.options.num_threads = static_cast<int>(*threads);
  if (kind == ProblemKind::forward) return std::make_unique<ForwardProblem>(std::move(drawn));
  if (kind == ProblemKind::states) return std::make_unique<StatesProblem>(std::move(drawn), seed);
  if (kind == ProblemKind::inspect) return std::make_unique<InspectProblem>(std::move(drawn), seed);
  if (!cases::has_gradients(drawn)) return nullptr;
  return std::make_unique<BackwardProblem>(std::move(drawn), seed);
}

std::unique_ptr<DrawnProblem> draw_problem(const cases::Problem& problem, std::uint64_t seed,
                                           std::optional<std::int64_t> threads) {
  cases::AttentionCase drawn = cases::draw_case(problem, seed);
  if (threads) drawn.options.num_threads = static_cast<int>(*threads);
  std::vector<reference::RowIndex> rows = cases::rows_to_check(problem, drawn, seed);
  return std::make_unique<ForwardProblem>(std::move(drawn), std::move(rows));
}

}  // namespace saccade::cli
