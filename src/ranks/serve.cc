// ServeRank: a rank that does what rank 0 does.
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "culet/device_memory.h"
#include "culet/dispatch.h"
#include "ranks/team_calls.h"

namespace culet {
namespace {

class Server {
 public:
  Server(Communicator& ranks, const TeamModel* own) : ranks_(ranks), own_(own) {}

  Status Run() {
    for (;;) {
      const auto heard = ranks_.Hear();
      if (heard.status().code() == StatusCode::kNotFound) return {};  // rank 0 left
      if (!heard) return heard.status();
      if (heard->empty()) return Status(StatusCode::kInternal, "rank 0 said nothing");
      const auto what = static_cast<TeamCall>(heard->front());
      const std::span<const std::byte> rest = std::span(*heard).subspan(1);
      const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
      switch (what) {
        case TeamCall::kStop:
          return {};
        case TeamCall::kOpen:
          CULET_RETURN_IF_ERROR(Open(text));
          break;
        case TeamCall::kSession:
          CULET_RETURN_IF_ERROR(ranks_.Agree(Create(text), text));
          break;
        case TeamCall::kTune: {
          const auto model = ModelOfJson(text);
          CULET_RETURN_IF_ERROR(model.status());
          CULET_RETURN_IF_ERROR(TuneSums(own_ != nullptr ? *own_ : *model, ranks_).status());
          break;
        }
        case TeamCall::kCall:
          CULET_RETURN_IF_ERROR(Call(rest));
          break;
      }
    }
  }

 private:
  struct Served {
    std::unique_ptr<KernelDispatch> dispatch;
    std::unique_ptr<Session> session;
  };

  // In the order in which rank 0 agrees.
  Status Open(const std::string& text) {
    const auto model = ModelOfJson(text);
    const auto plan = model ? PlanOf(own_ != nullptr ? *own_ : *model) : model.status();
    CULET_RETURN_IF_ERROR(ranks_.Agree(plan.status(), plan ? *plan : std::string()));
    opened_ = own_ != nullptr ? *own_ : *model;
    ranks_.SetWait(ranks_.options().start_seconds);
    const Status opened = ranks_.Agree(Load(opened_), "loaded");
    ranks_.SetWait(ranks_.options().wait_seconds);
    return opened;
  }

  Status Load(const TeamModel& model) {
    auto gemm = GemmOf(model, ranks_);
    if (!gemm) return gemm.status();
    gemm_ = std::make_unique<Gemm>(*std::move(gemm));
    DeviceMemory* memory = &HostMemory();
    if (gemm_->device().ordinal >= 0) {
      auto home = MakeCudaDispatch(*gemm_);
      if (!home) return home.status();
      home_ = *std::move(home);
      memory = &home_->memory();
    }
    LoadOptions load;
    load.rank = ranks_.rank();
    load.ranks = ranks_.size();
    load.experts = model.experts;
    auto made = [&]() -> Result<DecoderModel> {
      if (model.random == DataType::kNull) return DecoderModel::Load(model.path, *memory, load);
      auto config = ReadDecoderConfig(model.path);
      if (!config) return config.status();
      if (model.unlimited) config->max_position = 0;
      return DecoderModel::Random(*config, model.random, *memory, model.seed, load);
    }();
    if (!made) return made.status();
    model_ = std::make_unique<DecoderModel>(*std::move(made));
    return {};
  }

  Status Create(const std::string& text) {
    const int number = next_++;
    const auto wanted = SessionOfJson(text);
    if (!wanted) return wanted.status();
    auto own = DispatchOf(*gemm_, *wanted);
    if (!own) return own.status();
    if (exchange_ == nullptr) {
      auto made = ExchangeOf(opened_, ranks_, (*own)->memory());
      if (!made) return made.status();
      exchange_ = *std::move(made);
    }
    auto dispatch = MakeRankDispatch(*std::move(own), ranks_, exchange_);
    if (!dispatch) return dispatch.status();
    auto session = Session::Create(*model_, **dispatch, wanted->options);
    if (!session) return session.status();
    Served& served = sessions_[number];
    served.dispatch = *std::move(dispatch);
    served.session = std::make_unique<Session>(*std::move(session));
    return {};
  }

  // What a call returns, rank 0's returns too, or the exchange in it has failed on all ranks.
  Status Call(std::span<const std::byte> bytes) {
    int number = -1;
    if (bytes.size() < sizeof number) return Status(StatusCode::kInternal, "no session is named");
    std::memcpy(&number, bytes.data(), sizeof number);
    const auto found = sessions_.find(number);
    if (found == sessions_.end()) return Status(StatusCode::kInternal, "no such session");
    const std::span<const std::byte> call = bytes.subspan(sizeof number);
    if (call.empty()) {
      sessions_.erase(found);  // it is over
      return {};
    }
    static_cast<void>(found->second.session->Follow(call, [&]() -> Result<std::vector<std::byte>> {
      auto heard = ranks_.Hear();
      if (!heard) return heard;
      constexpr std::size_t kBefore = 1 + sizeof number;
      if (heard->size() < kBefore) return Status(StatusCode::kNotFound, "rank 0 left");
      heard->erase(heard->begin(), heard->begin() + kBefore);
      return heard;
    }));
    return {};
  }

  Communicator& ranks_;
  const TeamModel* own_;
  TeamModel opened_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<KernelDispatch> home_;
  std::unique_ptr<DecoderModel> model_;
  std::shared_ptr<RankExchange> exchange_;
  std::map<int, Served> sessions_;
  int next_ = 0;
};

}  // namespace

Status ServeRank(Communicator& ranks, const TeamModel* own) { return Server(ranks, own).Run(); }

}  // namespace culet
