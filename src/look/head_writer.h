// Writes the heads of one reading into a page.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "look/one_head.h"
#include "look/reading.h"
#include "saccade/look.h"
#include "saccade/page.h"

namespace saccade::heads {

/// Writes the heads of a reading into a page.
class HeadWriter {
 public:
  /// Adds the reading's parts to the page. on_layer: called after each layer. Throws std::invalid_argument for
  /// heads and tiles that do not exist, and for options that do not suit the length of the sequences.
  HeadWriter(AttentionPage& page, const Reading& reading, const LookOptions& options,
             std::function<void()> on_layer);

  /// Runs the model.
  void run();

 private:
  /// A part of the page: one of the model's attentions.
  struct Part {
    std::int64_t number = 0, queries = 0, keys = 0;
    bool is_long = false;
  };

  void check_options() const;
  void add_part(AttentionKind kind, const std::string& name, PagePart part);
  void add_gradient();
  void write(const LayerAttention& layer);
  void write_head(const Part& part, const LayerAttention& layer, std::int64_t head);
  void write_long_head(const Part& part, const LayerAttention& layer, std::int64_t head);
  /// The weights of a region [queries, keys] of a long head.
  Tensor weights_of(const LookTile& tile, const OneHead& one) const;
  bool is_chosen(const HeadPlace& place) const;
  /// Whether a head over a long text is shown: all are, or only those that were named.
  bool is_shown(const HeadPlace& place) const;

  AttentionPage& page_;
  const Reading& reading_;
  const LookOptions& options_;
  std::function<void()> on_layer_;
  std::map<AttentionKind, Part> parts_{};
};

}  // namespace saccade::heads
