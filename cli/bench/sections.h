// The sections of `saccade bench`, each defined in the file named above it.
#pragma once

#include "cases/problem.h"
#include "report.h"

namespace saccade::cli::bench {

// forward.cpp: as a share of the peak of multiply-adds.
Section f32_section();
Section bf16_section();
Section f16_section();

// backward.cpp: the same for gradients, and the cost of options.
Section backward_section();
Section backward_options_section();
Section backward_long_section();

// decode.cpp: as a share of the memory bandwidth.
Section decode_section();

// masked.cpp: hidden keys cost nothing.
Section window_section();
Section packed_section();
Section long_section();

// extras.cpp: additions to attention() cost little.
Section inspect_section();
Section modifier_section();

// small.cpp: a very small problem.
Section loop_section();

/// The problems of a file, each compared with its limit: the peak, or the memory bandwidth for decode().
Section shapes_section(const std::vector<cases::Problem>& problems);

}  // namespace saccade::cli::bench
