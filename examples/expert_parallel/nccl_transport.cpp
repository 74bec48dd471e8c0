#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "../common/cuda.hpp"
#include "transport.hpp"

namespace {

using Clock = std::chrono::steady_clock;

int number_from(std::initializer_list<const char*> names, int otherwise) {
    for (const char* name : names)
        if (const char* text = std::getenv(name)) return std::atoi(text);
    return otherwise;
}

// Asks done() until it returns true. Returns false where that takes longer than the timeout.
bool done_within(std::chrono::milliseconds timeout, const std::function<bool()>& done) {
    const auto deadline = Clock::now() + timeout;
    while (!done())
        if (Clock::now() > deadline) return false;
    return true;
}

std::string within(std::chrono::milliseconds timeout) { return " within " + std::to_string(timeout.count()) + " ms"; }

// Gives rank 0's id to all ranks: it appears under the name of the file in one step.
ncclUniqueId share_id(const Identity& who, const std::string& file, std::chrono::milliseconds timeout) {
    ncclUniqueId id;
    if (who.rank == 0) {
        if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
            throw std::runtime_error(std::string("NCCL: ncclGetUniqueId: ") + ncclGetErrorString(result));
        if (who.size == 1) return id;
        std::ofstream(file + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
        std::filesystem::rename(file + ".new", file);
        return id;
    }
    const auto is_there = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::filesystem::exists(file);
    };
    if (!done_within(timeout, is_there)) throw std::runtime_error("rank 0 did not write " + file + within(timeout));
    if (!std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal))
        throw std::runtime_error(file + " has no id of NCCL");
    return id;
}

class NcclTransport final : public Transport {
public:
    NcclTransport(const Identity& who, bool own_rows, std::chrono::milliseconds timeout)
        : who_(who), own_rows_(own_rows), timeout_(timeout) {
        const char* file = std::getenv("EP_ID_FILE");
        if (who.size > 1 && !file) throw std::runtime_error("set EP_ID_FILE to a file that no run has used before");
        const ncclUniqueId id = share_id(who, file ? file : "", timeout);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;  // calls return at once, so that a rank that is gone leaves nobody inside of one
        started(ncclCommInitRankConfig(&comm_, who.size, id, who.rank, &config), "ncclCommInitRankConfig");
        if (who.rank == 0 && file && who.size > 1) std::filesystem::remove(file);
    }
    ~NcclTransport() override {
        if (comm_) ncclCommAbort(comm_);
    }
    int rank() const override { return who_.rank; }
    int size() const override { return who_.size; }
    void meet() override {}
    bool captures() const override { return true; }

    void gather(const int32_t* mine, int32_t* all, int64_t count, cudaStream_t stream) override {
        started(ncclAllGather(mine, all, size_t(count), ncclInt32, comm_, stream), "ncclAllGather");
    }

    void exchange(std::span<const Segment> out, std::span<const Segment> in, std::span<const Lane> lanes,
                  cudaStream_t stream) override {
        const auto travels = [&](const Segment& s) { return s.rows > 0 && (own_rows_ || s.peer != who_.rank); };
        forked_.record(stream);
        accepted(ncclGroupStart(), "ncclGroupStart");
        for (const Lane& lane : lanes) {
            for (const Segment& s : out)
                if (travels(s))
                    accepted(ncclSend(static_cast<const std::byte*>(lane.from) + s.row * lane.row_bytes,
                                      size_t(s.rows * lane.row_bytes), ncclUint8, s.peer, comm_, stream),
                             "ncclSend");
            for (const Segment& s : in)
                if (travels(s))
                    accepted(ncclRecv(static_cast<std::byte*>(lane.to) + s.row * lane.row_bytes,
                                      size_t(s.rows * lane.row_bytes), ncclUint8, s.peer, comm_, stream),
                             "ncclRecv");
        }
        started(ncclGroupEnd(), "ncclGroupEnd");
        if (!own_rows_) copy_own(out, in, lanes, stream);
    }

    void wait(cudaStream_t stream) override {
        constexpr auto what = "an exchange";
        poll(what, [&] {
            const cudaError_t state = cudaStreamQuery(stream);
            if (state != cudaErrorNotReady) check(state);
            return has_started(what) && state == cudaSuccess;
        });
    }

private:
    // Copies rows that stay on this rank, on another stream, overlapped with NCCL's kernels.
    void copy_own(std::span<const Segment> out, std::span<const Segment> in, std::span<const Lane> lanes,
                  cudaStream_t stream) {
        forked_.hold(beside_);
        match(out, who_.rank, in, who_.rank, [&](int64_t from_row, int64_t to_row, int64_t rows) {
            for (const Lane& lane : lanes) copy_rows(lane, from_row, lane, to_row, rows, beside_);
        });
        copied_.record(beside_);
        copied_.hold(stream);
    }
    // Throws unless NCCL took a call.
    void accepted(ncclResult_t result, const char* call) {
        if (result == ncclSuccess || result == ncclInProgress) return;
        fail(std::string("NCCL: ") + call + ": " + ncclGetErrorString(result) + ". " + ncclGetLastError(comm_));
    }
    // Returns whether the host's part of the last call is done. Throws what went wrong since.
    bool has_started(const char* call) {
        ncclResult_t state = ncclSuccess;
        accepted(ncclCommGetAsyncError(comm_, &state), call);
        accepted(state, call);
        return state == ncclSuccess;
    }
    void started(ncclResult_t result, const char* call) {
        accepted(result, call);
        poll(call, [&] { return has_started(call); });
    }
    void poll(const char* what, const std::function<bool()>& done) {
        if (!done_within(timeout_, done))
            fail(std::string("NCCL: ") + what + " did not end" + within(timeout_) + ": another rank may be gone");
    }
    // Ends the communicator, and with it what its kernels wait for.
    [[noreturn]] void fail(const std::string& message) {
        if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
        throw std::runtime_error("rank " + std::to_string(who_.rank) + " of " + std::to_string(who_.size) + ": " + message);
    }

    const Identity who_;
    const bool own_rows_;
    const std::chrono::milliseconds timeout_;
    const Stream beside_;
    Event forked_, copied_;
    ncclComm_t comm_ = nullptr;
};

}  // namespace

Identity identity_from_environment() {
    Identity who;
    who.rank = number_from({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
    who.size = number_from({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 1);
    who.local_rank = number_from({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, who.rank);
    return who;
}

std::unique_ptr<Transport> nccl_transport(const Identity& identity, bool own_rows, std::chrono::milliseconds timeout) {
    // NVLink multicast needs rights that shared hosts do not give, and send and receive do not use it.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    constexpr int oldest = 22800;
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < oldest)
        throw std::runtime_error("NCCL 2.28 or later is needed, but the one that was loaded says " +
                                 std::to_string(version) + "; put a newer libnccl.so.2 first in LD_LIBRARY_PATH");
    return std::make_unique<NcclTransport>(identity, own_rows, timeout);
}
