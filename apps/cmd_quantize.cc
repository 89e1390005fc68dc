// culet quantize: a checkpoint with quantised linear layers, made from a plain one.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/quantize_checkpoint.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

namespace culet::cli {
namespace {

struct QuantizeArgs {
  std::string folder, out, format;
  std::vector<std::string> keep;
  bool json = false;
};

int RunQuantize(const QuantizeArgs& args) {
  const auto format = ParseCheckpointFormat(args.format);
  if (!format) return Fail(format.status(), args.json);
  const InterruptGuard guard;
  Progress progress;
  QuantizeCheckpointOptions options;
  options.format = *format;
  options.keep = args.keep;
  options.stop = [] { return InterruptSignal() != 0; };
  options.on_progress = [&](std::size_t done, std::size_t all) {
    const double share = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
    progress.Update(share, fmt::format("{} of {}", ShownBytes(static_cast<double>(done)),
                                       ShownBytes(static_cast<double>(all))));
  };
  const auto made = QuantizeCheckpoint(args.folder, args.out, options);
  progress.Clear();
  if (!made) {
    const int code = Fail(made.status(), args.json);
    return InterruptSignal() != 0 ? InterruptExitCode() : code;
  }
  if (args.json) {
    PrintJson({{"folder", args.out},
               {"format", args.format},
               {"quantised", made->quantised},
               {"plain", made->plain},
               {"bytes_before", made->bytes_before},
               {"bytes_after", made->bytes_after}});
    return kSuccess;
  }
  Print("{}: {} in {}, {} of {}; {} left as they are\n", args.out,
        Counted(made->quantised, "linear layer"), args.format,
        ShownBytes(static_cast<double>(made->bytes_after)),
        ShownBytes(static_cast<double>(made->bytes_before)), made->plain.size());
  return kSuccess;
}

}  // namespace

void AddQuantize(const Command& program) {
  auto args = std::make_shared<QuantizeArgs>();
  const Command command =
      program.AddCommand("quantize", "Write a checkpoint with quantised linear layers");
  command.Add("FOLDER", args->folder, "A checkpoint of 16 or 32 bits: config.json and safetensors")
      .Required();
  command.Add("OUT", args->out, "The folder to write, new or empty").Required();
  command
      .Add(
          "--format", args->format,
          "u4: 4 bits, groups of 128; u4-asymmetric: with zero points; fp8-row, fp8-block: E4M3, a "
          "scale a row or 128 x 128")
      .OneOf({"u4", "u4-asymmetric", "fp8-row", "fp8-block"})
      .Required();
  command
      .Add("--keep", args->keep,
           "Layers to leave as they are, as a config's ignore names them: down_proj, "
           "model.layers.3, re:.*mlp.*")
      .Type("NAMES");
  command.AddFlag("--json", args->json, "Print one JSON document");
  command.Footer(
      "Rounds to nearest. The form is that of compressed-tensors, which transformers and "
      "vLLM read.");
  command.Runs([args] { return RunQuantize(*args); });
}

}  // namespace culet::cli
