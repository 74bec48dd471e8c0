"""Times of callables in turns, in microseconds a call: medians over rounds of CUDA graphs that rotate through copies of the
operands, or of loops of a second or two, in which every peer runs at the clock that its power allows."""
import statistics

import torch


def _milliseconds(call):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _graph(calls):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def in_turns(candidates, rounds=9, loop_ms=2.0):
    """candidates: name -> calls, one for each copy of the operands. Returns name -> us, and name -> why it could not be timed."""
    graphs, failed = {}, {}
    for name, calls in candidates.items():
        try:
            graph = _graph(calls)
            once = _milliseconds(graph.replay)
            once = min(once, _milliseconds(graph.replay))
            graphs[name] = (graph, len(calls), max(1, round(loop_ms / once)))
        except Exception as error:  # one peer's failure must not end the others
            failed[name] = str(error).splitlines()[0][:200]
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, (graph, calls, repeats) in graphs.items():
            times[name].append(1e3 * _milliseconds(lambda: [graph.replay() for _ in range(repeats)]) / (calls * repeats))
    return {name: statistics.median(values) for name, values in times.items()}, failed
