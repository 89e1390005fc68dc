// What is behind the opaque handles that several files of the C interface use.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "culet/culet.h"
#include "culet/decoder.h"
#include "culet/dispatch_cache.h"
#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "culet/rank_team.h"

struct culet_engine {
  // Thread-safe as Gemm is; its own const says less than Gemm does.
  mutable culet::Gemm gemm;
  std::optional<culet::CacheFile> file;
  std::string note;
};

namespace culet::capi {

/// A model in the memory of a dispatch, which is there for that.
struct LoadedModel {
  std::unique_ptr<RankTeam> team;              // null for one rank
  std::unique_ptr<std::recursive_mutex> turn;  // of the team's sessions, which exchange one by one
  std::unique_ptr<KernelDispatch> home;
  DecoderModel model;
};

}  // namespace culet::capi

struct culet_model {
  culet_engine* engine;
  std::shared_ptr<const culet::capi::LoadedModel> loaded;
};
