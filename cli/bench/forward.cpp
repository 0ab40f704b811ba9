// Dense and causal attention of each element type, compared with the peak of multiply-adds.
#include "sections.h"
#include "timed_problem.h"

namespace saccade::cli::bench {
namespace {

struct ForwardSize {
  std::int64_t batch, heads, seqlen, head_dim;
  bool causal;
};

Section forward_section(DType dtype, const std::vector<ForwardSize>& sizes) {
  const std::string name(name_of(dtype));
  Section section{name, "forward, " + name, {"GFLOP/s", "of peak"}, {}};
  for (const auto& [batch, heads, seqlen, head_dim, causal] : sizes) {
    cases::Problem problem;
    problem.batch = batch;
    problem.num_heads = problem.num_kv_heads = heads;
    problem.seqlen_q = problem.seqlen_k = seqlen;
    problem.head_dim = problem.head_dim_v = head_dim;
    problem.q_type = problem.k_type = problem.v_type = problem.o_type = dtype;
    problem.options.causal = causal ? Causal::top_left : Causal::none;
    section.items.push_back([problem](const Conditions& conditions) {
      return measure_beside_peak(words_of(problem), problem, conditions);
    });
  }
  return section;
}

const std::vector<ForwardSize> kShortTypes = {{1, 8, 2048, 128, false}, {1, 8, 4096, 128, false},
                                              {1, 8, 2048, 64, false},  {1, 8, 4096, 64, false},
                                              {1, 8, 4096, 128, true},  {1, 8, 4096, 64, true}};

}  // namespace

Section f32_section() {
  return forward_section(DType::f32, {{1, 8, 1024, 128, false},
                                      {1, 8, 4096, 128, false},
                                      {1, 8, 1024, 64, false},
                                      {1, 8, 4096, 64, false},
                                      {1, 8, 1024, 128, true},
                                      {1, 8, 2048, 128, true},
                                      {1, 8, 4096, 128, true},
                                      {1, 8, 1024, 64, true},
                                      {1, 8, 2048, 64, true},
                                      {1, 8, 4096, 64, true},
                                      {8, 12, 128, 64, false},
                                      {1, 1, 4096, 64, false}});
}

Section bf16_section() { return forward_section(DType::bf16, kShortTypes); }
Section f16_section() { return forward_section(DType::f16, kShortTypes); }

}  // namespace saccade::cli::bench
