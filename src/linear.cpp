#include "saccade/linear.h"
