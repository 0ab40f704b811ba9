#include "saccade/modules.h"
