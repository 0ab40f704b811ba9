#include <locale.h>
#include <stdlib.h>

#include "io/system/c_locale.h"

double saccade::io::strtod_in_c_locale(const char* text, char** end) {
  static const _locale_t c_locale = ::_create_locale(LC_ALL, "C");
  return ::_strtod_l(text, end, c_locale);
}
