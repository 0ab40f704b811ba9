// Prints the weights of one head of a model over tokens, for rxnmapper_check.py:
//
//     head_weights MODEL LAYER HEAD < TOKENS
//
// A line of TOKENS is a sequence; for each the weights are printed, a line for each query.
#include <saccade/model.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

namespace {

using namespace saccade;

void print(const LayerAttention& layer, std::int64_t head) {
  Tensor weights(DType::f32, {layer.q.shape[1], layer.q.shape[0], layer.k.shape[0]});
  AttentionOptions options = layer.options;
  options.weights = weights;
  attention(layer.q, layer.k, layer.v, options);
  for (std::int64_t i = 0; i < weights.shape(1); ++i) {
    for (std::int64_t j = 0; j < weights.shape(2); ++j) std::printf("%.9g ", weights.at<float>(head, i, j));
    std::putchar('\n');
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("head_weights MODEL LAYER HEAD < TOKENS\n", stderr), 2;
  const Model model = Model::load(argv[1]);
  const std::int64_t layer = std::atoll(argv[2]), head = std::atoll(argv[3]);
  for (std::string line; std::getline(std::cin, line);) {
    ModelInput input;
    std::istringstream numbers(line);
    for (std::int64_t token = 0; numbers >> token;) input.tokens.push_back(token);
    model.hidden_states(input, {.on_attention = [&](const LayerAttention& attention) {
                          if (attention.layer == layer) print(attention, head);
                        }});
  }
}
