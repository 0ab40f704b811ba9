// What ONNX Runtime loads: RegisterCustomOps adds the operator Attention to the options of a session. In the
// standard's domain, which is "", it takes the place of ONNX Runtime's own: custom operators are looked up first.
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "attention_node.h"

namespace saccade::onnxruntime {
namespace {

/// Attention for one type of Q and K and one of V; the types of the mask are checked when a session is made.
struct AttentionOperator : OrtCustomOp {
  int type_q = kFloat, type_v = kFloat;
  int num_threads = 0;
  int start_version = 1;  ///< of the domain, in which the operator appeared
};

constexpr int kFirstOpset = 23;

const AttentionOperator& self(const OrtCustomOp* op) { return static_cast<const AttentionOperator&>(*op); }

/// A node with its functions' table, as ONNX Runtime keeps it.
struct Kernel {
  Api api;
  AttentionNode node;
};

OrtStatus* create_kernel(const OrtCustomOp* op, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  std::string prefix;
  try {
    prefix = "node '" + api.text<KernelInfo_GetNodeName>(info) + "': ";
    *kernel = new Kernel{api, AttentionNode(api, info, self(op).num_threads)};
    return nullptr;
  } catch (...) {
    return api.status_of_exception(prefix);
  }
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& [api, node] = *static_cast<const Kernel*>(kernel);
  try {
    node.run(context);
    return nullptr;
  } catch (...) {
    return api.status_of_exception("");
  }
}

int input_type(const OrtCustomOp* op, std::size_t index) {
  switch (index) {
    case kQ:
    case kK:
    case kPastKey:
      return self(op).type_q;
    case kV:
    case kPastValue:
      return self(op).type_v;
    case kNonpadKvSeqlen:
      return kInt64;
    default:
      return kUndefined;  // any
  }
}

int output_type(const OrtCustomOp* op, std::size_t index) {
  return index == kPresentValue ? self(op).type_v : self(op).type_q;
}

OrtCustomOp callbacks() {
  OrtCustomOp op{};
  op.version = kApiVersion;
  op.GetName = [](const OrtCustomOp*) { return "Attention"; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) { return "CPUExecutionProvider"; };
  op.GetInputType = &input_type;
  op.GetInputTypeCount = [](const OrtCustomOp*) { return std::size_t{kInputs}; };
  op.GetOutputType = &output_type;
  op.GetOutputTypeCount = [](const OrtCustomOp*) { return std::size_t{kOutputs}; };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.GetInputCharacteristic = [](const OrtCustomOp*, std::size_t index) {
    return int{index <= kV ? kRequired : kOptional};
  };
  op.GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t index) {
    return int{index == kY ? kRequired : kOptional};
  };
  op.GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return 0; };
  op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = op.GetVariadicOutputMinArity =
      op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  op.CreateKernelV2 = &create_kernel;
  op.KernelComputeV2 = &compute;
  op.GetStartVersion = [](const OrtCustomOp* given) { return self(given).start_version; };
  op.GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  return op;
}

/// The operators of sessions with one number of threads. Sessions refer to them, so they are never freed.
struct Domain {
  OrtCustomOpDomain* domain = nullptr;
  std::deque<AttentionOperator> operators;
};

OrtCustomOpDomain* domain_of(const Api& api, const std::string& name, int num_threads) {
  static std::mutex mutex;
  static auto& domains = *new std::map<std::pair<std::string, int>, Domain>;
  const std::scoped_lock lock(mutex);
  Domain& found = domains[{name, num_threads}];
  if (found.domain != nullptr) return found.domain;
  OrtCustomOpDomain* domain = nullptr;
  api.call<CreateCustomOpDomain>(name.c_str(), &domain);
  for (const int type_q : {kFloat, kFloat16, kBfloat16, kDouble})
    for (const int type_v : {kFloat, kFloat16, kBfloat16, kDouble}) {
      AttentionOperator& op = found.operators.emplace_back();
      static_cast<OrtCustomOp&>(op) = callbacks();
      op.type_q = type_q;
      op.type_v = type_v;
      op.num_threads = num_threads;
      op.start_version = name.empty() ? kFirstOpset : 1;
      api.call<CustomOpDomain_Add>(domain, static_cast<const OrtCustomOp*>(&op));
    }
  found.domain = domain;
  return domain;
}

/// An entry of a session's configuration; `otherwise` without one.
std::string configured(const Api& api, const OrtSessionOptions* options, const char* key, const char* otherwise) {
  int has = 0;
  api.call<HasSessionConfigEntry>(options, key, &has);
  return has != 0 ? api.text<GetSessionConfigEntry>(options, key) : otherwise;
}

int number_of_threads(const std::string& text) {
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos)
    throw std::invalid_argument("saccade.num_threads: expected 0 or a positive number, got '" + text + "'");
  return std::stoi(text);
}

}  // namespace
}  // namespace saccade::onnxruntime

/// Called by SessionOptions.register_custom_ops_library().
extern "C" [[gnu::visibility("default")]] OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                       const OrtApiBase* base) {
  using namespace saccade::onnxruntime;
  const OrtApi* const table = base->GetApi(kApiVersion);
  const Api api(table != nullptr ? table : base->GetApi(1));
  try {
    if (table == nullptr)
      throw std::invalid_argument(std::string("expected ONNX Runtime 1.17 or newer, got ") +
                                  base->GetVersionString());
    const OrtSessionOptions* const given = options;
    const int threads = number_of_threads(configured(api, given, "saccade.num_threads", "0"));
    const std::string domain = configured(api, given, "saccade.domain", "");
    api.call<AddCustomOpDomain>(options, domain_of(api, domain, threads));
    return nullptr;
  } catch (...) {
    return api.status_of_exception("[saccade] ");
  }
}
