#include "problem_args.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

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

bool IsFast(const GemmDesc& desc) { return desc.accumulate == Accumulate::kFast; }

}  // namespace

Json ToJson(const Problem& problem) {
  const GemmDesc& desc = problem.desc;
  return {{"name", problem.name},
          {"m", desc.m},
          {"n", desc.n},
          {"k", desc.k},
          {"format", ToString(problem.format)},
          {"out", NameOf(desc.d.type)},
          {"pdl", desc.pdl},
          {"fast", IsFast(desc)},
          {"align_b", desc.b.align}};
}

std::string Label(const Problem& problem) {
  const GemmDesc& desc = problem.desc;
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
  std::string name = problem.name.empty() ? "-" : problem.name;
  if (name.size() > kMostName) name = name.substr(0, kMostName - 3) + "...";
  const GemmDesc& desc = problem.desc;
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
         !out_.empty() || pdl_ || fast_ || aligned_weights_;
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

Result<std::vector<ProblemArgs::Named>> ProblemArgs::LoadModel(Format* format) const {
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
      named.push_back({product.name, RowsOf(product, m), product.n, product.k});
    }
  }
  return named;
}

Result<std::vector<Problem>> ProblemArgs::Load(int arch) const {
  Format format = format_.empty() ? Format::kBf16 : *ParseFormat(format_);
  const DataType output = ParseOutput(out_).value_or(DataType::kNull);
  Result<std::vector<Named>> named = std::vector<Named>{};
  if (!shapes_.empty()) {
    named = LoadShapes();
  } else if (!model_.empty()) {
    named = LoadModel(&format);
  } else {
    for (const int m : m_) named->push_back({"", m, n_, k_});
  }
  if (!named.ok()) return named.status();

  std::vector<Problem> problems;
  std::map<GemmDesc, std::size_t> index;
  for (const Named& shape : *named) {
    Result<GemmDesc> desc = MakeDesc(format, shape.m, shape.n, shape.k, arch, output);
    if (!desc.ok()) return desc.status();
    desc->pdl = pdl_;
    if (aligned_weights_) desc->b.align = 16;
    if (fast_) desc->accumulate = Accumulate::kFast;
    const auto [it, is_new] = index.try_emplace(*desc, problems.size());
    if (is_new) {
      problems.push_back(
          {shape.name, format, *desc,
           fmt::format("--m {} --n {} --k {} --format {} --out {}{}{}{}", shape.m, shape.n, shape.k,
                       ToString(format), NameOf(desc->d.type), pdl_ ? " --pdl" : "",
                       fast_ ? " --fast" : "", aligned_weights_ ? " --aligned-weights" : "")});
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
