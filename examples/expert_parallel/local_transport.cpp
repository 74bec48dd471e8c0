#include <condition_variable>
#include <mutex>
#include <vector>

#include "../common/cuda.hpp"
#include "transport.hpp"

// Holds what each rank shows the others between two meetings.
struct Post {
    std::span<const Segment> out;
    std::span<const Lane> lanes;
    const int32_t* numbers = nullptr;
};

class LocalWorld {
public:
    LocalWorld(int size, std::chrono::milliseconds timeout) : posts(size), timeout_(timeout) {}

    // Returns when all ranks are here. One that does not come ends the wait of the others.
    void meet(int rank) {
        std::unique_lock lock(mutex_);
        const uint64_t round = rounds_;
        if (++here_ == posts.size()) {
            here_ = 0;
            ++rounds_;
            all_here_.notify_all();
            return;
        }
        if (all_here_.wait_for(lock, timeout_, [&] { return rounds_ != round; })) return;
        throw std::runtime_error("rank " + std::to_string(rank) + " of " + std::to_string(posts.size()) +
                                 ": another rank did not come within " + std::to_string(timeout_.count()) + " ms");
    }

    std::vector<Post> posts;

private:
    std::mutex mutex_;
    std::condition_variable all_here_;
    size_t here_ = 0;
    uint64_t rounds_ = 0;
    const std::chrono::milliseconds timeout_;
};

void copy_rows(const Lane& from, int64_t from_row, const Lane& to, int64_t to_row, int64_t rows, cudaStream_t stream) {
    const auto* source = static_cast<const std::byte*>(from.from) + from_row * from.row_bytes;
    auto* target = static_cast<std::byte*>(to.to) + to_row * to.row_bytes;
    check(cudaMemcpyAsync(target, source, size_t(rows * to.row_bytes), cudaMemcpyDeviceToDevice, stream));
}

namespace {

class LocalTransport final : public Transport {
public:
    LocalTransport(std::shared_ptr<LocalWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return int(world_->posts.size()); }
    void wait(cudaStream_t stream) override {
        check(cudaStreamSynchronize(stream));
        meet();
    }
    void meet() override { world_->meet(rank_); }
    bool captures() const override { return rank_ == 0; }

    void gather(const int32_t* mine, int32_t* all, int64_t count, cudaStream_t stream) override {
        world_->posts[rank_].numbers = mine;
        meet();
        for (int peer = 0; peer < size(); ++peer)
            check(cudaMemcpyAsync(all + peer * count, world_->posts[peer].numbers, count * sizeof(int32_t),
                                  cudaMemcpyDeviceToDevice, stream));
        meet();
    }

    void exchange(std::span<const Segment> out, std::span<const Segment> in, std::span<const Lane> lanes,
                  cudaStream_t stream) override {
        world_->posts[rank_] = {out, lanes, nullptr};
        meet();
        for (int peer = 0; peer < size(); ++peer) {
            const Post& post = world_->posts[peer];
            match(post.out, rank_, in, peer, [&](int64_t from_row, int64_t to_row, int64_t rows) {
                for (size_t i = 0; i < lanes.size(); ++i) copy_rows(post.lanes[i], from_row, lanes[i], to_row, rows, stream);
            });
        }
        meet();
    }

private:
    const std::shared_ptr<LocalWorld> world_;
    const int rank_;
};

}  // namespace

std::shared_ptr<LocalWorld> local_world(int size, std::chrono::milliseconds timeout) {
    return std::make_shared<LocalWorld>(size, timeout);
}

std::unique_ptr<Transport> join(std::shared_ptr<LocalWorld> world, int rank) {
    return std::make_unique<LocalTransport>(std::move(world), rank);
}
