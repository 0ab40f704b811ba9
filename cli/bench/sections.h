// The sections of `saccade bench`, each defined in the file of its name or of its kind.
#pragma once

#include "cases/problem.h"
#include "report.h"

namespace saccade::cli::bench {

// forward.cpp: share of the peak of multiply-adds.
Section f32_section();
Section bf16_section();
Section f16_section();

// backward.cpp: the same of gradients, and what options add to them.
Section backward_section();
Section backward_options_section();
Section backward_long_section();

// decode.cpp: share of the bandwidth of memory.
Section decode_section();

// masked.cpp: what is hidden costs nothing.
Section window_section();
Section packed_section();
Section long_section();

// extras.cpp: what is added to attention() costs little.
Section inspect_section();
Section modifier_section();

// small.cpp: the smallest problem there is.
Section loop_section();

/// The problems of a file, each beside what limits it: the peak, or, for decode(), memory.
Section shapes_section(const std::vector<cases::Problem>& problems);

}  // namespace saccade::cli::bench
