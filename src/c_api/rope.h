// The rotary embedding behind a saccade_rope.
#pragma once

#include "saccade/rope.h"

struct saccade_rope {
  saccade::Rope rope;
};
