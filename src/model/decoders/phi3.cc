// Phi-3, Phi-4 and Phi-4-mini.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"sliding_window"};

void Read(DecoderReader& reader) { reader.WindowsFrom(0, reader.Window(0)); }

}  // namespace

const DecoderArchitecture kPhi3{
    .name = "Phi3ForCausalLM",
    .model_type = "phi3",
    .read = Read,
    .defaults = {.epsilon = 1e-5, .partial_rotary = 1},
    .names = {.qkv = "qkv_proj", .gate_up = "gate_up_proj"},
    .keys = kKeys,
    .parts = "q, k and v in one tensor, gate and up in one, partial rope, longrope"};

}  // namespace culet
