#include "tests/support/fake_cuda/capture.h"

#include <algorithm>

namespace spccl::fake_cuda {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): a driver is made of its names

// Those that have not ended.
std::set<std::shared_ptr<Capture>>& Captures() {
  static auto* const captures = new std::set<std::shared_ptr<Capture>>;
  return *captures;
}

int& ThreadMode() {
  static thread_local int mode = kStreamCaptureModeGlobal;
  return mode;
}

Result Invalidate(Capture& capture, Result error) {
  if (capture.invalid == kSuccess) capture.invalid = error;
  return error;
}

// Whether the capture keeps this thread from unsafe calls.
bool Forbids(const Capture& capture) {
  if (ThreadMode() == kStreamCaptureModeRelaxed) return false;
  const bool is_mine = capture.thread == std::this_thread::get_id();
  if (is_mine) return capture.mode != kStreamCaptureModeRelaxed;
  return ThreadMode() == kStreamCaptureModeGlobal && capture.mode == kStreamCaptureModeGlobal;
}

// Whether all that was captured comes before the origin's end.
bool IsJoined(const Capture& capture) {
  const auto& nodes = capture.graph->nodes;
  std::set<size_t> reached;
  std::vector<size_t> open(capture.origin->frontier.begin(), capture.origin->frontier.end());
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return reached.size() == nodes.size();
}

void DestroyUser(UserObjectHandle* object) {
  // Some thread of the driver's, some time.
  std::thread([object] {
    Rely(object->released);
    this_thread().running = process().contexts.front().get();
    object->destroy(object->data);
    delete object;
  }).detach();
}

void Release(UserObjectHandle* object, unsigned count) {
  Promise(object->released);
  if (object->references.fetch_sub(count) == count) DestroyUser(object);
}

// References to user objects, of a graph that can be launched and of its launches.
class UserReferences {
 public:
  explicit UserReferences(const GraphHandle& graph) {
    for (const auto& [object, count] : graph.users) {
      object->references.fetch_add(1);
      objects_.push_back(object);
    }
  }
  ~UserReferences() {
    const Inside inside;
    for (UserObjectHandle* object : objects_) Release(object, 1);
  }
  UserReferences(const UserReferences&) = delete;
  UserReferences& operator=(const UserReferences&) = delete;

 private:
  std::vector<UserObjectHandle*> objects_;
};

struct Replay {
  explicit Replay(const GraphHandle& graph) : users(graph) {
    for (const GraphHandle::Node& node : graph.nodes) works.push_back(node.work);
  }
  UserReferences users;
  std::vector<std::shared_ptr<const Work>> works;  // in the order of capture
};

}  // namespace
}  // namespace spccl::fake_cuda

namespace spccl::cuda {

struct GraphExecHandle {
  std::shared_ptr<const fake_cuda::Work> replay;
  fake_cuda::CompletionPtr last;  // launches of one follow each other
};

}  // namespace spccl::cuda

namespace spccl::fake_cuda {

Result CheckUnsafe(const StreamHandle* stream) {
  Result result = kSuccess;
  if (stream != nullptr && stream->capture != nullptr) {
    result = Invalidate(*stream->capture, kErrorStreamCaptureUnsupported);
  }
  for (const auto& capture : Captures()) {
    if (Forbids(*capture)) result = Invalidate(*capture, kErrorStreamCaptureUnsupported);
  }
  return result;
}

Result CheckImplicit(const StreamHandle& stream) {
  Result result = kSuccess;
  if (&stream != stream.context->legacy) return result;
  for (const auto& capture : Captures()) {
    const bool orders = std::any_of(
        capture->streams.begin(), capture->streams.end(),
        [&](const StreamHandle* one) { return one->blocking && one->context == stream.context; });
    if (orders) result = Invalidate(*capture, kErrorStreamCaptureImplicit);
  }
  return result;
}

Result AddNode(StreamHandle& stream, std::shared_ptr<const Work> work) {
  Capture& capture = *stream.capture;
  if (capture.invalid != kSuccess) return kErrorStreamCaptureInvalidated;
  auto& nodes = capture.graph->nodes;
  nodes.push_back({std::move(work), std::move(stream.frontier)});
  stream.frontier = {nodes.size() - 1};
  return kSuccess;
}

Result JoinCapture(StreamHandle& stream, const EventHandle& event) {
  if (event.capture == nullptr) {
    if (event.recorded == nullptr) return kSuccess;
    return Invalidate(*stream.capture, kErrorStreamCaptureIsolation);
  }
  if (event.capture->graph == nullptr) return kErrorCapturedEvent;
  if (stream.capture != nullptr && stream.capture != event.capture) {
    Invalidate(*stream.capture, kErrorStreamCaptureMerge);
    return Invalidate(*event.capture, kErrorStreamCaptureMerge);
  }
  stream.capture = event.capture;
  stream.capture->streams.insert(&stream);
  stream.frontier.insert(event.frontier.begin(), event.frontier.end());
  return kSuccess;
}

void LeaveCapture(StreamHandle& stream) {
  if (stream.capture == nullptr) return;
  Invalidate(*stream.capture, kErrorStreamCaptureUnjoined);
  stream.capture->streams.erase(&stream);
  stream.capture = nullptr;
}

namespace {

Result Begin(StreamHandle& stream, int mode) {
  if (mode < kStreamCaptureModeGlobal || mode > kStreamCaptureModeRelaxed) {
    return kErrorInvalidValue;
  }
  if (&stream == stream.context->legacy) return kErrorStreamCaptureUnsupported;
  if (stream.capture != nullptr) return kErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  static uint64_t last_id = 0;
  capture->graph = new GraphHandle;
  capture->id = ++last_id;
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams.insert(&stream);
  stream.capture = capture;
  stream.frontier.clear();
  Captures().insert(std::move(capture));
  return kSuccess;
}

Result End(StreamHandle& stream, Graph* graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  *graph = nullptr;
  if (capture == nullptr) return kErrorIllegalState;
  if (capture->origin != &stream) {
    return Invalidate(*capture, kErrorStreamCaptureUnmatched);
  }
  if (capture->mode != kStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return kErrorStreamCaptureWrongThread;
  }
  Result result = capture->invalid == kSuccess ? kSuccess : kErrorStreamCaptureInvalidated;
  if (result == kSuccess && !IsJoined(*capture)) result = kErrorStreamCaptureUnjoined;
  Captures().erase(capture);
  for (StreamHandle* one : capture->streams) {
    one->capture = nullptr;
    one->frontier.clear();
  }
  if (result == kSuccess) {
    *graph = capture->graph;
  } else {
    for (const auto& [object, count] : capture->graph->users) Release(object, count);
    delete capture->graph;
  }
  capture->graph = nullptr;
  return result;
}

std::set<GraphHandle*>& Graphs() {
  static auto* const graphs = new std::set<GraphHandle*>;
  return *graphs;
}
std::set<GraphExecHandle*>& GraphExecs() {
  static auto* const execs = new std::set<GraphExecHandle*>;
  return *execs;
}

int StatusOf(const StreamHandle& stream) {
  if (stream.capture == nullptr) return kStreamCaptureStatusNone;
  return stream.capture->invalid == kSuccess ? kStreamCaptureStatusActive
                                             : kStreamCaptureStatusInvalidated;
}

}  // namespace

size_t CountGraphs() {
  return Graphs().size() + GraphExecs().size();
}

}  // namespace spccl::fake_cuda

namespace spccl::cuda {

using fake_cuda::Call;
using fake_cuda::CallOn;
using fake_cuda::Lock;
using fake_cuda::Misuse;
using fake_cuda::Needs;

SPCCL_FAKE_EXPORT Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  return CallOn("cuStreamBeginCapture_v2", stream,
                [&](StreamHandle& found, Lock&) { return fake_cuda::Begin(found, mode); });
}

SPCCL_FAKE_EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
  return CallOn("cuStreamEndCapture", stream, [&](StreamHandle& found, Lock&) {
    const Result result = fake_cuda::End(found, graph);
    if (result == kSuccess) fake_cuda::Graphs().insert(*graph);
    return result;
  });
}

SPCCL_FAKE_EXPORT Result cuStreamIsCapturing(Stream stream, int* status) {
  return CallOn("cuStreamIsCapturing", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (const Result implicit = fake_cuda::CheckImplicit(found); implicit != kSuccess) {
      return implicit;
    }
    *status = fake_cuda::StatusOf(found);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuStreamGetCaptureInfo_v2(Stream stream, int* status, uint64_t* id,
                                                   Graph* graph, const GraphNode** dependencies,
                                                   size_t* count) {
  return CallOn("cuStreamGetCaptureInfo_v2", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (const Result implicit = fake_cuda::CheckImplicit(found); implicit != kSuccess) {
      return implicit;
    }
    if (dependencies != nullptr) return kErrorNotSupported;  // nobody asks
    *status = fake_cuda::StatusOf(found);
    if (*status != kStreamCaptureStatusActive) return kSuccess;
    if (id != nullptr) *id = found.capture->id;
    if (graph != nullptr) *graph = found.capture->graph;
    if (count != nullptr) *count = found.frontier.size();
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  return Call("cuThreadExchangeStreamCaptureMode", Needs::kDriver, [&](Lock&) -> Result {
    std::swap(*mode, fake_cuda::ThreadMode());
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuGraphInstantiateWithFlags(
    GraphExec* exec, Graph graph,
    unsigned long long flags) {  // NOLINT(google-runtime-int): as the driver has it
  return Call("cuGraphInstantiateWithFlags", Needs::kContext, [&](Lock&) -> Result {
    if (fake_cuda::Graphs().count(graph) == 0) {
      return Misuse(kErrorInvalidValue, "cuGraphInstantiate of a graph that does not exist");
    }
    const auto replay = std::make_shared<const fake_cuda::Replay>(*graph);
    *exec = new GraphExecHandle;
    (*exec)->replay = std::make_shared<const fake_cuda::Work>([replay](ContextHandle& context) {
      for (const auto& work : replay->works) {
        if (work != nullptr && context.broken.load() == kSuccess) (*work)(context);
      }
    });
    fake_cuda::GraphExecs().insert(*exec);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuGraphLaunch(GraphExec exec, Stream stream) {
  return CallOn("cuGraphLaunch", stream, [&](StreamHandle& found, Lock&) -> Result {
    if (fake_cuda::GraphExecs().count(exec) == 0) {
      return Misuse(kErrorInvalidHandle, "cuGraphLaunch of a graph that does not exist");
    }
    std::vector<fake_cuda::CompletionPtr> after;
    if (exec->last != nullptr) after.push_back(exec->last);
    const bool captured = found.capture != nullptr;
    const Result result = fake_cuda::Enqueue(found, exec->replay, std::move(after));
    if (!captured && result == kSuccess) exec->last = found.last;
    return result;
  });
}

SPCCL_FAKE_EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  return Call("cuGraphExecDestroy", Needs::kDriver, [&](Lock&) -> Result {
    if (fake_cuda::GraphExecs().erase(exec) == 0) {
      return Misuse(kErrorInvalidHandle, "cuGraphExecDestroy of what does not exist");
    }
    delete exec;  // launches that have not ended keep what they replay
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuGraphDestroy(Graph graph) {
  return Call("cuGraphDestroy", Needs::kDriver, [&](Lock&) -> Result {
    if (fake_cuda::Graphs().erase(graph) == 0) {
      return Misuse(kErrorInvalidValue, "cuGraphDestroy of a graph that does not exist");
    }
    for (const auto& [object, count] : graph->users) fake_cuda::Release(object, count);
    delete graph;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuUserObjectCreate(UserObject* object, void* user_data, HostFn destroy,
                                            unsigned count, unsigned flags) {
  return Call("cuUserObjectCreate", Needs::kDriver, [&](Lock&) -> Result {
    if (destroy == nullptr || count == 0 || flags != kUserObjectNoDestructorSync) {
      return kErrorInvalidValue;
    }
    *object = new UserObjectHandle;
    (*object)->destroy = destroy;
    (*object)->data = user_data;
    (*object)->references = count;
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuUserObjectRelease(UserObject object, unsigned count) {
  return Call("cuUserObjectRelease", Needs::kDriver, [&](Lock&) -> Result {
    fake_cuda::Release(object, count);
    return kSuccess;
  });
}

SPCCL_FAKE_EXPORT Result cuGraphRetainUserObject(Graph graph, UserObject object, unsigned count,
                                                 unsigned flags) {
  return Call("cuGraphRetainUserObject", Needs::kDriver, [&](Lock&) -> Result {
    if ((flags & ~kGraphUserObjectMove) != 0) return kErrorInvalidValue;
    if ((flags & kGraphUserObjectMove) == 0) object->references.fetch_add(count);
    graph->users.emplace_back(object, count);
    return kSuccess;
  });
}

}  // namespace spccl::cuda
