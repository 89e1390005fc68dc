// Which problems an engine was asked for: counted, and those without a measured choice written
// down.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/fork_mutex.h"
#include "culet/desc.h"
#include "culet/status.h"
#include "culet/untuned.h"

namespace culet {

class Usage {
 public:
  /// `file`: where untuned problems are written; empty: nowhere.
  Usage(std::string file, std::string device_class)
      : file_(std::move(file)), device_class_(std::move(device_class)) {}

  /// A choice for a problem. A line is appended when an untuned one is met first.
  void Note(const GemmDesc& desc, bool measured);

  Coverage coverage() const;

 private:
  const std::string file_, device_class_;
  mutable ForkMutex mutex_;
  std::map<GemmDesc, bool> measured_;  // of each problem; no more than kMostProblems
};

}  // namespace culet
