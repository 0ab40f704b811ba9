// The style, the body and the script of a page: page.css, body.html and script/*.js, which the build puts into a
// source.
#pragma once

#include <string_view>

namespace saccade::page {

extern const std::string_view kPageStyle, kPageBody, kPageScript;

}  // namespace saccade::page
