#include "saccade/attention.h"
