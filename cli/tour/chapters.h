// The chapters of the tour; make_tour sets their order.
#pragma once

#include "guide.h"

namespace saccade::cli {

// six_tokens.cpp: one sentence of six tokens, from dot products to several heads.
void tell_one_query(Guide& guide);
void tell_all_pairs(Guide& guide);
void tell_trainable_weights(Guide& guide);
void tell_linear_layers(Guide& guide);
void tell_causal_mask(Guide& guide);
void tell_dropout(Guide& guide);
void tell_causal_module(Guide& guide);
void tell_many_heads(Guide& guide);

// other_examples.cpp: results printed by other authors.
void tell_dot_products(Guide& guide);
void tell_hello_shiny_sun(Guide& guide);
void tell_numpy_example(Guide& guide);
void tell_five_tokens(Guide& guide);
void tell_repeated_row(Guide& guide);

}  // namespace saccade::cli
