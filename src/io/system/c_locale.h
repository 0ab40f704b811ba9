// Numbers in the C locale, whichever locale a program has set.
#pragma once

namespace saccade::io {

/// strtod() in the C locale: the decimal point is a point. (std::from_chars() reads no fractions on macOS
/// before 26.)
double strtod_in_c_locale(const char* text, char** end);

}  // namespace saccade::io
