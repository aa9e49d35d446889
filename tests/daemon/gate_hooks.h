// Hooks for the core whose tasks wait until the test opens them, and record what they were asked.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/core_hooks.h"

namespace spccl::daemon {

// Shared by the test and the hooks' tasks. Thread-safe.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // For tasks: counts the caller in, and waits for Open().
  void Enter() {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return open_; });
  }
  // For tests: waits until `count` slices have begun.
  bool AwaitEntered(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return entered_ >= count; });
  }
  void Note(const policy::Settings& settings) {
    std::lock_guard lock(mutex_);
    settings_.push_back(settings);
  }
  std::vector<policy::Settings> settings() {
    std::lock_guard lock(mutex_);
    return settings_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int entered_ = 0;
  std::vector<policy::Settings> settings_;
};

// A task of one slice that lasts until the gate opens, or of none once it is cancelled.
class GateTask final : public runtime::Task {
 public:
  GateTask(std::shared_ptr<Gate> gate, runtime::DoneFn done)
      : gate_(std::move(gate)), done_(std::move(done)) {}

  runtime::Progress RunOne(runtime::Scratch) override {
    {
      std::lock_guard lock(mutex_);
      if (claimed_) return runtime::Progress::kDone;
      claimed_ = true;
    }
    gate_->Enter();
    runtime::OpResult result;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      result = result_;
    }
    done_(result);
    return runtime::Progress::kDone;
  }

  void Cancel(absl::Status reason, int culprit_rank) override {
    {
      std::lock_guard lock(mutex_);
      if (ended_ || !result_.status.ok()) return;
      result_.status = std::move(reason);
      result_.culprit_rank = culprit_rank;
      if (claimed_) return;
      claimed_ = ended_ = true;
    }
    done_(result_);
  }

 private:
  const std::shared_ptr<Gate> gate_;
  const runtime::DoneFn done_;
  std::mutex mutex_;
  bool claimed_ = false, ended_ = false;
  runtime::OpResult result_;
};

inline CoreHooks GateHooks(std::shared_ptr<Gate> gate) {
  CoreHooks hooks;
  hooks.plan_model = [] { return nullptr; };
  hooks.settings = [](const std::string&, uint64_t, const policy::Overrides& wishes) {
    return policy::Apply(policy::Settings{}, wishes);
  };
  hooks.settings_version = [] { return uint64_t{1}; };
  hooks.registered_job = [](const Peer&) { return std::string(); };
  hooks.is_registered = [](const std::string&) { return false; };
  hooks.change_settings = [](uint64_t, const policy::Overrides&) { return absl::OkStatus(); };
  hooks.share = [](const std::string&) { return JobShare{}; };
  hooks.forget = [](uint64_t) {};
  hooks.make_task = [gate](const OpDesc&, std::span<const runtime::RankBuffers>,
                           const policy::Settings& settings,
                           runtime::DoneFn done) -> absl::StatusOr<std::unique_ptr<runtime::Task>> {
    gate->Note(settings);
    return std::make_unique<GateTask>(gate, std::move(done));
  };
  return hooks;
}

}  // namespace spccl::daemon
