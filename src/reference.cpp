#include "saccade/reference.h"
