// Worlds of several processes: what they say to each other.
#include <algorithm>
#include <cstring>

#include "tests/support/fake_nccl/fake_world.h"

namespace spccl {

std::shared_ptr<FakeWorld> FakeState::WorldOf(const std::string& id) {
  std::shared_ptr<FakeWorld>& world = worlds_[id];
  if (world != nullptr) return world;
  world = std::make_shared<FakeWorld>();
  const std::string maker = id.substr(0, id.find(' '));
  if (maker == links_.name()) return world;
  const auto link = links_.Connect(maker);
  if (link->fd < 0) {
    world->error = nccl::kRemoteError;
    return world;
  }
  link->world = world;
  world->links.push_back(link);
  links_.Send(link.get(), {.kind = FakeMessage::Kind::kHello}, id);
  return world;
}

void FakeState::Tell(const FakeWorld& world, const FakeMessage& message, std::string_view bytes,
                     const FakeLink* except) {
  for (const auto& link : world.links) {
    if (link.get() != except) links_.Send(link.get(), message, bytes);
  }
}

void FakeState::OnHello(const std::shared_ptr<FakeLink>& link, const std::string& id) {
  link->world = WorldOf(id);
  FakeWorld& world = *link->world;
  for (const auto& comm : world.comms) {
    if (comm == nullptr) continue;
    links_.Send(link.get(), {.kind = FakeMessage::Kind::kJoin,
                             .rank = comm->rank,
                             .number = static_cast<uint64_t>(world.ranks)});
  }
  if (world.error != nccl::kSuccess) {
    links_.Send(link.get(),
                {.kind = FakeMessage::Kind::kFail, .number = static_cast<uint64_t>(world.error)},
                world.why);
  }
  world.links.push_back(link);
}

void FakeState::OnMessage(const std::shared_ptr<FakeLink>& link, const FakeMessage& message,
                          std::string_view bytes) {
  using Kind = FakeMessage::Kind;
  if (message.kind == Kind::kHello) return OnHello(link, std::string(bytes));
  FakeWorld& world = *link->world;
  if (message.kind == Kind::kData) return OnData(&world, message, bytes);
  if (message.kind == Kind::kFail) {
    if (world.error != nccl::kSuccess) return;
    if (message.number == nccl::kInternalError) {
      return Violation(std::string(bytes), &world, link.get());
    }
    return Fail(&world, static_cast<nccl::Result>(message.number), std::string(bytes), link.get());
  }
  Tell(world, message, bytes, link.get());  // the others of the id's maker
  if (message.kind == Kind::kJoin) {
    const auto comm = std::make_shared<FakeComm>();
    comm->world = link->world;
    comm->rank = message.rank;
    comm->link = link;
    (void)Join(static_cast<int>(message.number), comm);
    return;
  }
  const bool exists = message.rank >= 0 && message.rank < world.ranks;
  const auto comm = exists ? world.comms[message.rank] : nullptr;
  if (comm == nullptr || comm->link != link) return;
  switch (message.kind) {
    case Kind::kLaunch:
      return OnLaunch(comm, message.number, bytes);
    case Kind::kRun:
      return Begin(world.kernels.at({message.rank, message.number}).get());
    case Kind::kFinalize:
      ++world.finalized;
      return;
    default:  // kLeave
      comm->aborted = true;
      world.comms[message.rank] = nullptr;
      changed_.notify_all();
  }
}

void FakeState::OnLaunch(const std::shared_ptr<FakeComm>& comm, uint64_t number,
                         std::string_view calls) {
  const auto kernel = std::make_shared<FakeKernel>();
  kernel->comm = comm;
  kernel->number = number;
  for (size_t at = 0; at < calls.size(); at += sizeof(FakeCall)) {
    FakeCall call;
    std::memcpy(&call, calls.data() + at, sizeof call);
    AddOp(kernel.get(), call, nullptr);
  }
  Place(kernel);
}

void FakeState::OnData(FakeWorld* world, const FakeMessage& message, std::string_view bytes) {
  const auto& comm = world->comms[message.rank];
  if (comm == nullptr) return;  // gone
  if (comm->link != nullptr) return links_.Send(comm->link.get(), message, bytes);
  const auto& kernel = world->kernels.at({message.rank, message.number});
  kernel->ops[static_cast<size_t>(message.peer)]->arrived = bytes;
  changed_.notify_all();
}

void FakeState::OnEnded(FakeLink* link) {
  if (link->world == nullptr) return;
  FakeWorld& world = *link->world;
  std::erase_if(world.links, [&](const auto& other) { return other.get() == link; });
  const bool had_ranks = std::any_of(world.comms.begin(), world.comms.end(), [&](const auto& comm) {
    return comm != nullptr && comm->link.get() == link;
  });
  if ((!had_ranks && !link->dialed) || world.finalized == world.ranks) return;
  Fail(&world, nccl::kRemoteError, "a process is gone", link);
}

}  // namespace spccl
