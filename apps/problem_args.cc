#include "problem_args.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "culet/grouped.h"
#include "culet/scratch.h"

namespace culet::cli {
namespace {

constexpr const char* kHowToName =
    "name problems with --m M --n N --k K, with --shapes FILE, or with --model CONFIG --m M,M,...";

struct OutputName {
  const char* name;
  DataType type;
};
constexpr OutputName kOutputs[] = {
    {"f32", DataType::kFloat32}, {"f16", DataType::kFloat16}, {"bf16", DataType::kBfloat16}};

const char* NameOf(DataType output) {
  for (const OutputName& known : kOutputs) {
    if (known.type == output) return known.name;
  }
  return ToString(output);
}

std::optional<DataType> ParseOutput(const std::string& name) {
  for (const OutputName& known : kOutputs) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

// The grouped product of a format that has one.
Result<GemmDesc> MakeGroupedDesc(Format format, int tokens, int n, int k, int experts, int active,
                                 int local, bool gathered, bool gated, DataType output, int arch) {
  const Result<GemmDesc> plain = MakeDesc(format, tokens, n, k, arch, output);
  if (!plain.ok()) return plain.status();
  static constexpr std::int32_t kSomeIndex = 0;
  GroupedArgs args;
  args.groups = local > 0 ? local : experts;
  args.rows = args.a_rows = tokens;
  args.n = gated ? n / 2 : n;
  args.k = k;
  args.type = plain->a.type;
  args.d_type = plain->d.type;
  if (gathered) args.index = &kSomeIndex;
  if (gated) args.epilogue = Epilogue::kGatedSilu;
  args.expected_tokens = tokens;
  args.expected_active = active;
  args.expected_experts = experts;
  Result<GemmDesc> desc = DescribeGrouped(args, arch);
  if (desc.ok() && (desc->a.quant != plain->a.quant || plain->b.type != plain->a.type)) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("grouped products have no format {}; take fp8-block, bf16, f16 or f32",
                    ToString(format)));
  }
  return desc;
}

bool IsFast(const GemmDesc& desc) { return desc.accumulate == Accumulate::kFast; }

}  // namespace

double MinimumBytes(const Problem& problem) {
  return problem.rows ? GroupedBytes(problem.desc, *problem.rows)
                      : culet::MinimumBytes(problem.desc);
}

double Operations(const Problem& problem) {
  const GemmDesc& desc = problem.desc;
  return problem.rows ? 2 * problem.rows->rows * desc.n * desc.k : culet::Operations(desc);
}

Json ToJson(const Problem& problem) {
  const GemmDesc& desc = problem.desc;
  Json json = {{"name", problem.name},
               {"m", desc.m},
               {"n", desc.n},
               {"k", desc.k},
               {"format", ToString(problem.format)},
               {"out", NameOf(desc.d.type)},
               {"pdl", desc.pdl},
               {"fast", IsFast(desc)},
               {"align_b", desc.b.align}};
  if (IsGrouped(desc)) {
    json["grouped"] = {{"experts", desc.group_experts},
                       {"top_k", desc.group_active},
                       {"local", desc.num},
                       {"gathered", desc.a.striding == Striding::kIndexed},
                       {"gated", IsGated(desc.epilogue)}};
    if (problem.rows) {
      json["grouped"]["rows"] = problem.rows->rows;
      json["grouped"]["reached"] = problem.rows->reached;
    }
  }
  return json;
}

std::string Label(const Problem& problem) {
  const GemmDesc& desc = problem.desc;
  if (IsGrouped(desc) && problem.name.empty()) {
    return fmt::format("{} of {} experts m={} n={} k={}", desc.group_active, desc.group_experts,
                       desc.m, desc.n, desc.k);
  }
  return problem.name.empty() ? fmt::format("m={} n={} k={}", desc.m, desc.n, desc.k)
                              : fmt::format("{} m={}", problem.name, desc.m);
}

std::vector<Table::Column> ProblemColumns(const std::vector<Problem>& problems) {
  std::vector<Table::Column> columns = {{"problem"},
                                        {"m", Table::Align::kRight},
                                        {"n", Table::Align::kRight},
                                        {"k", Table::Align::kRight},
                                        {"format"}};
  for (const Problem& problem : problems) {
    const std::vector<std::string> cells = ProblemCells(problem);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i].width = std::max(columns[i].width, cells[i].size());
    }
  }
  return columns;
}

std::vector<std::string> ProblemCells(const Problem& problem) {
  constexpr std::size_t kMostName = 32;
  const GemmDesc& desc = problem.desc;
  std::string name = !problem.name.empty() ? problem.name
                     : IsGrouped(desc)
                         ? fmt::format("{} of {} experts", desc.group_active, desc.group_experts)
                         : "-";
  if (name.size() > kMostName) name = name.substr(0, kMostName - 3) + "...";
  return {name, std::to_string(desc.m), std::to_string(desc.n), std::to_string(desc.k),
          fmt::format("{}>{}{}{}", ToString(problem.format), NameOf(desc.d.type),
                      desc.pdl ? "+pdl" : "", IsFast(desc) ? "+fast" : "")};
}

void ProblemArgs::AddTo(const Command& command) {
  const char* const group = "Problems";
  m_option_ = command
                  .Add("--m", m_,
                       "Rows of A, a list: 1,16,128. With --model: tokens in flight, of "
                       "which a routed expert gets its even share. With --shapes: only the "
                       "lines with these m")

                  .Type("M,M,...")
                  .Group(group);
  n_option_ = command.Add("--n", n_, "Columns of D: output features").Type("N").Group(group);
  k_option_ = command.Add("--k", k_, "Columns of A: input features").Type("K").Group(group);
  command.Add("--shapes", shapes_, "A file of lines: name m n k").Type("FILE").Group(group);
  command.Add("--model", model_, "A Hugging Face config.json, or its folder, or a GGUF file")
      .Type("CONFIG")
      .Group(group);
  command
      .Add("--format", format_,
           "fp8-block, fp8-row, fp8-tensor, bf16, f16, f32, f32-bf16 or f32-f16 (A-B), or of "
           "BF16 by codes u4, mxfp4, int8 or w8; default: the model's own, else bf16")
      .Type("FORMAT")
      .Group(group);
  command.Add("--out", out_, "Type of D: f32, f16 or bf16; default: the format's")
      .Type("TYPE")
      .Group(group);
  experts_option_ = command
                        .Add("--experts", experts_,
                             "A grouped product: each of M tokens goes to --top-k of so many "
                             "experts, which have N x K weights each")
                        .Range(1, 1 << 20)
                        .Type("E")
                        .Group(group);
  command.Add("--top-k", active_, "Experts of a token").Range(1, 1 << 20).Type("N").Group(group);
  command.Add("--local", local_, "Experts whose weights are here, the first; default: all")
      .Range(1, 1 << 20)
      .Type("E")
      .Group(group);
  command.AddFlag("--gathered", gathered_, "Rows of A are gathered by an index").Group(group);
  command
      .AddFlag("--gated", gated_, "silu(gate) * up of experts whose N rows are gate's, then up's")
      .Group(group);
  command
      .AddFlag("--pdl", pdl_,
               "As programmatic dependent launches: the kernel before does not write the weights")
      .Group(group);
  command
      .AddFlag("--fast", fast_,
               "Sums of FP8 products may stay in a tensor core that keeps fewer than 24 bits")
      .Group(group);
  command
      .AddFlag("--aligned-weights", aligned_weights_,
               "The rows of the weights begin on 16 bytes, as culet.nn lays them, whatever K is")
      .Group(group);
}

bool ProblemArgs::given() const {
  return m_option_.count() + n_option_.count() + k_option_.count() != 0 || !shapes_.empty() ||
         !model_.empty();
}

bool ProblemArgs::given_beside_model() const {
  return m_option_.count() + n_option_.count() + k_option_.count() != 0 || !shapes_.empty() ||
         !out_.empty() || pdl_ || fast_ || aligned_weights_ || experts_option_.count() != 0 ||
         active_ != 0 || local_ != 0 || gathered_ || gated_;
}

std::string ProblemArgs::Misuse() const {
  const bool sizes = n_option_.count() != 0 || k_option_.count() != 0;
  if (sizes + !shapes_.empty() + !model_.empty() > 1) {
    return fmt::format("--n/--k, --shapes and --model exclude each other; {}", kHowToName);
  }
  if (!sizes && shapes_.empty() && model_.empty()) {
    return m_.empty() ? fmt::format("no problem given; {}", kHowToName)
                      : fmt::format("--m alone names no problem; {}", kHowToName);
  }
  if (sizes && (n_option_.count() == 0 || k_option_.count() == 0 || m_.empty())) {
    return fmt::format("{} is missing beside the other sizes; {}",
                       m_.empty()               ? "--m"
                       : n_option_.count() == 0 ? "--n"
                                                : "--k",
                       kHowToName);
  }
  if (!model_.empty() && m_.empty()) return "--model needs --m, the tokens in flight: --m 1,16,128";
  const bool grouped = experts_option_.count() != 0;
  if (!grouped && (active_ != 0 || local_ != 0 || gathered_ || gated_)) {
    return "--top-k, --local, --gathered and --gated are of a grouped product; give --experts";
  }
  if (grouped && !sizes) return "--experts takes sizes: give --m, --n and --k";
  if (grouped && active_ == 0) return "--experts needs --top-k, the experts of a token";
  if (active_ > experts_) {
    return fmt::format("--top-k is {}, but there are {} experts", active_, experts_);
  }
  if (local_ > experts_) {
    return fmt::format("--local is {}, but there are {} experts", local_, experts_);
  }
  if (gated_ && n_ % 2 != 0) return fmt::format("--n is {}; --gated takes an even number", n_);
  if (grouped && (fast_ || aligned_weights_)) {
    return "--fast and --aligned-weights are for plain products";
  }
  for (const int m : m_) {
    if (m < 1) return fmt::format("--m is {}; it must be at least 1", m);
  }
  if (sizes && n_ < 1) return fmt::format("--n is {}; it must be at least 1", n_);
  if (sizes && k_ < 1) return fmt::format("--k is {}; it must be at least 1", k_);
  if (!format_.empty()) {
    if (const auto format = ParseFormat(format_); !format.ok()) {
      return "--format: " + format.status().message();
    }
  }
  if (!out_.empty() && !ParseOutput(out_)) {
    return fmt::format("--out: the type '{}' is unknown; known are f32, f16, bf16", out_);
  }
  return {};
}

Result<std::vector<ProblemArgs::Named>> ProblemArgs::LoadShapes() const {
  const auto shapes = ReadShapes(shapes_);
  if (!shapes.ok()) return shapes.status();
  std::vector<Named> named;
  for (const NamedShape& shape : *shapes) {
    const bool wanted = m_.empty() || std::count(m_.begin(), m_.end(), shape.m) != 0;
    if (wanted) named.push_back({shape.name, shape.m, shape.n, shape.k});
  }
  if (named.empty()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{} has no line with the m that --m asks for", shapes_));
  }
  return named;
}

Result<std::vector<ProblemArgs::Named>> ProblemArgs::LoadModel(Format* format, int arch) const {
  const auto model = ReadModelShapes(model_);
  if (!model.ok()) return model.status();
  if (format_.empty()) {
    if (!model->format.has_value()) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("{}: the type of the weights is missing or unknown; give --format", model_));
    }
    *format = *model->format;
  }
  std::vector<Named> named;
  for (const int m : m_) {
    for (const ModelProduct& product : model->products) {
      // On a GPU routed experts are grouped products, of which gate and up gather their rows; on
      // the CPU a product each.
      const Format wanted = format_.empty() ? *format : *ParseFormat(format_);
      const bool has_grouped =
          wanted == Format::kFp8Block || wanted == Format::kBf16 || wanted == Format::kF16;
      if (product.experts > 0 && arch != 0 && has_grouped) {
        const bool first = product.name == "experts.gate_up";
        named.push_back({product.name, m, product.n, product.k, product.experts,
                         product.active_experts, first, first});
      } else {
        named.push_back({product.name, RowsOf(product, m), product.n, product.k});
      }
    }
  }
  return named;
}

Result<GemmDesc> ProblemArgs::DescOf(const Named& named, Format format, DataType output,
                                     int arch) const {
  Result<GemmDesc> desc =
      named.experts == 0
          ? MakeDesc(format, named.m, named.n, named.k, arch, output)
          : MakeGroupedDesc(format, named.m, named.n, named.k, named.experts, named.active, local_,
                            named.gathered, named.gated, output, arch);
  if (!desc.ok()) return desc;
  desc->pdl = pdl_;
  if (aligned_weights_ && !IsGrouped(*desc)) desc->b.align = 16;
  if (fast_ && !IsGrouped(*desc)) desc->accumulate = Accumulate::kFast;
  return desc;
}

std::string ProblemArgs::ArgumentsOf(const Named& named, Format format,
                                     const GemmDesc& desc) const {
  std::string text =
      fmt::format("--m {} --n {} --k {} --format {} --out {}{}", named.m, named.n, named.k,
                  ToString(format), NameOf(desc.d.type), pdl_ ? " --pdl" : "");
  if (!IsGrouped(desc)) {
    return text + (fast_ ? " --fast" : "") + (aligned_weights_ ? " --aligned-weights" : "");
  }
  text += fmt::format(" --experts {} --top-k {}", named.experts, named.active);
  if (local_ > 0) text += fmt::format(" --local {}", local_);
  return text + (named.gathered ? " --gathered" : "") + (named.gated ? " --gated" : "");
}

Result<std::vector<Problem>> ProblemArgs::Load(int arch) const {
  Format format = format_.empty() ? Format::kBf16 : *ParseFormat(format_);
  const DataType output = ParseOutput(out_).value_or(DataType::kNull);
  Result<std::vector<Named>> named = std::vector<Named>{};
  if (!shapes_.empty()) {
    named = LoadShapes();
  } else if (!model_.empty()) {
    named = LoadModel(&format, arch);
  } else {
    for (const int m : m_) {
      named->push_back({"", m, n_, k_, experts_, active_, gathered_, gated_});
    }
  }
  if (!named.ok()) return named.status();

  std::vector<Problem> problems;
  std::map<GemmDesc, std::size_t> index;
  for (const Named& shape : *named) {
    const Result<GemmDesc> desc = DescOf(shape, format, output, arch);
    if (!desc.ok()) return desc.status();
    const auto [it, is_new] = index.try_emplace(*desc, problems.size());
    if (is_new) {
      problems.push_back(
          {shape.name, format, *desc, std::nullopt, ArgumentsOf(shape, format, *desc)});
      continue;
    }
    std::string& names = problems[it->second].name;
    if ((',' + names + ',').find(',' + shape.name + ',') == std::string::npos) {
      names += ',' + shape.name;
    }
  }
  return problems;
}

}  // namespace culet::cli
