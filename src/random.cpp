#include "saccade/random.h"
