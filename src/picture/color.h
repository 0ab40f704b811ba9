// The colors of the pictures: one sequential ramp on white, from pale to dark.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace saccade::picture {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// The ramp at t in [0, 1]: its OKLab lightness falls evenly from 0.96 to 0.27.
Rgb ramp(double t);

/// Evenly spaced stops of the ramp; between them it is linear in sRGB.
inline constexpr std::array<Rgb, 11> kRamp = {{{0xE9, 0xF4, 0xFC},
                                               {0xC0, 0xE1, 0xF8},
                                               {0x9A, 0xCC, 0xF2},
                                               {0x77, 0xB6, 0xEB},
                                               {0x5A, 0x9F, 0xE0},
                                               {0x42, 0x88, 0xD1},
                                               {0x32, 0x71, 0xBD},
                                               {0x28, 0x5B, 0xA5},
                                               {0x22, 0x46, 0x8A},
                                               {0x1C, 0x33, 0x6D},
                                               {0x15, 0x22, 0x4F}}};

/// The stops of the ramp in the xterm palette of 256 colors: similar blues with decreasing lightness.
inline constexpr std::array<std::uint8_t, 11> kRamp256 = {255, 153, 117, 75, 33, 32, 26, 25, 19, 18, 17};

/// True where white text is easier to read on a color than dark text (contrast ratio of WCAG 2).
bool wants_white_text(Rgb background);

/// The color of an entry >= 16 of the xterm palette.
Rgb rgb_of_256(std::uint8_t index);

/// "#rrggbb".
std::string hex(Rgb color);

// The other colors of the pictures.
inline constexpr const char* kInk = "#1f2328";         // text
inline constexpr const char* kFaintInk = "#8fa3b5";    // numbers that round to 0
inline constexpr const char* kQuiet = "#6b7280";       // axes, captions
inline constexpr const char* kHairline = "#d5d9de";    // ticks, frames
inline constexpr const char* kNothing = "#f4f4f2";     // masked cells
inline constexpr const char* kNothingDot = "#c3c4c0";  // the dot in them
inline constexpr const char* kAlarm = "#d1495b";       // NaN
inline constexpr Rgb kDarkText = {0x1F, 0x23, 0x28};

}  // namespace saccade::picture
