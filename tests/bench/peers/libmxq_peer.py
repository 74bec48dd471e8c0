"""libmxq itself, by the implementation that it chooses."""

NAME = "libmxq"


class Peer:
    def __init__(self, library):
        self.library, self.version = library, library.functions.mxq_version_string().decode()

    def takes(self, case):
        return True

    def calls(self, operands):
        verb = "grouped_gemm" if operands.case.experts else "gemm"
        calls = []
        for x, w, ends in zip(operands.activations, operands.weights, operands.ends):
            out = operands.output()
            a = self.library.plain(x, ends) if operands.case.activations == "BF16" else x.handle
            run, self.implementation = self.library.verb(verb, None, a, w.handle, self.library.plain(out))
            calls.append(lambda run=run, out=out: (run(), out)[1])
        return calls
