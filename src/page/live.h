// A page that carries a model, and the scripts that run it.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "page/part.h"
#include "saccade/page.h"

namespace saccade::page {

/// saccade.js as a script that sets globalThis.saccadeLibrary, and the style and the scripts of live/, which
/// follow the page's own. The build puts them into a source.
extern const std::string_view kLiveLibrary, kLiveStyle, kLiveScript;

/// A model as the page stores it.
struct LiveModel {
  Json about;  ///< the index says this of it
  std::vector<Element> files;
  std::string_view library = kLiveLibrary, style = kLiveStyle, script = kLiveScript;
};

}  // namespace saccade::page
