// Ranges arrive at a profiler that NVTX finds: one in this program, which keeps what it is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "base/trace.h"

namespace {

std::vector<std::string> told;

nvtxDomainHandle_t NVTX_API DomainCreate(const char* name) {
  told.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&told);
}
int NVTX_API RangePush(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  told.push_back(domain == reinterpret_cast<nvtxDomainHandle_t>(&told) ? event->message.ascii
                                                                       : "of another domain");
  return 0;
}
int NVTX_API RangePop(nvtxDomainHandle_t) {
  told.push_back("pop");
  return 0;
}

template <class Function>
void Put(NvtxFunctionTable table, int slot, Function function) {
  *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int NVTX_API Inject(NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  Put(table, NVTX_CBID_CORE2_DomainCreateA, DomainCreate);
  Put(table, NVTX_CBID_CORE2_DomainRangePushEx, RangePush);
  Put(table, NVTX_CBID_CORE2_DomainRangePop, RangePop);
  return 1;
}

}  // namespace

namespace culet {
namespace {

TEST(Nvtx, RangesAreInADomainOfCulets) {
  // What NVTX looks at before it opens a profiler's library, at the first call.
  InitializeInjectionNvtx2_fnptr = Inject;
  ASSERT_TRUE(SetTracing(true).ok());
  {
    const TraceRange outer([] { return std::string("layers.0.q kernel"); });
    const TraceRange inner([] { return std::string("kernel 1x2x3"); });
  }
  ASSERT_TRUE(SetTracing(false).ok());
  {
    const TraceRange off([] { return std::string("off"); });
  }
  EXPECT_THAT(told, ::testing::ElementsAre("domain culet", "layers.0.q kernel", "kernel 1x2x3",
                                           "pop", "pop"));
}

}  // namespace
}  // namespace culet
