// How rows travel from rank to rank. The layer knows nothing else of other ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

// Rows that go to a peer or come from one, in the order of the sender's or of the receiver's buffer.
struct Segment {
    int peer;
    int64_t row, rows;
};

// A buffer of rows on this rank, and one for the rows that arrive.
struct Lane {
    const void* from;
    void* to;
    int64_t row_bytes;
};

// Functions that take a stream enqueue, and every rank calls them in the same order. A rank that another one fails throws.
class Transport {
public:
    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    // Writes the `count` numbers of each rank, one rank after another.
    virtual void gather(const int32_t* mine, int32_t* all, int64_t count, cudaStream_t stream) = 0;
    // Sends the segments `out` of each lane and receives `in`. Two ranks list what they have for one another in one order.
    virtual void exchange(std::span<const Segment> out, std::span<const Segment> in, std::span<const Lane> lanes,
                          cudaStream_t stream) = 0;
    // Waits on the host for what was enqueued.
    virtual void wait(cudaStream_t stream) = 0;
    // Ranks of one process share streams: all wait for one another on the host, and one of them captures graphs.
    virtual void meet() = 0;
    virtual bool captures() const = 0;
};

// Calls copy(row of the sender, row of the receiver, rows) for what a sender has for a receiver.
template <class Copy>
void match(std::span<const Segment> out, int receiver, std::span<const Segment> in, int sender, Copy copy) {
    auto arriving = in.begin();
    for (const Segment& leaving : out) {
        if (leaving.peer != receiver) continue;
        while (arriving != in.end() && arriving->peer != sender) ++arriving;
        if (arriving == in.end() || arriving->rows != leaving.rows)
            throw std::runtime_error("rank " + std::to_string(sender) + " sends " + std::to_string(leaving.rows) +
                                     " rows that rank " + std::to_string(receiver) + " does not expect");
        if (leaving.rows > 0) copy(leaving.row, arriving->row, leaving.rows);
        ++arriving;
    }
}

// Enqueues the copy of rows of a lane, from the memory of any rank of this device.
void copy_rows(const Lane& from, int64_t from_row, const Lane& to, int64_t to_row, int64_t rows, cudaStream_t stream);

// Ranks that are threads of one process on one device, all with the same streams: their order is what makes copies right.
class LocalWorld;
std::shared_ptr<LocalWorld> local_world(int size, std::chrono::milliseconds timeout);
std::unique_ptr<Transport> join(std::shared_ptr<LocalWorld> world, int rank);

// Who this process is, as torchrun, mpirun, srun or launch.sh say in environment variables.
struct Identity {
    int rank = 0, size = 1, local_rank = 0;
};
Identity identity_from_environment();

// A rank of its own process, over NCCL. Ranks find one another by the file that EP_ID_FILE names, on a file system that all
// of them see; a world of one needs none. own_rows: rows that stay on the rank go through NCCL as well, which one GPU can
// test.
std::unique_ptr<Transport> nccl_transport(const Identity& identity, bool own_rows, std::chrono::milliseconds timeout);
