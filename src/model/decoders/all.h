// Declares what all.def lists.
#pragma once

#include "model/decoder_architecture.h"

namespace culet {

#define CULET_DECODER(name) extern const DecoderArchitecture name;
#include "model/decoders/all.def"
#undef CULET_DECODER

}  // namespace culet
