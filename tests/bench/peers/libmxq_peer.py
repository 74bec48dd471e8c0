"""libmxq itself, by the implementation that it chooses."""

NAME = "libmxq"


class Peer:
    def __init__(self, library, row_invariant=False):
        self.mxq, self.version, self.implementation = library, library.functions.mxq_version_string().decode(), ""
        self.options = None
        if row_invariant:
            self.options = library.create("mxq_gemm_options_create")
            library.call("mxq_gemm_options_set_row_invariant", self.options, 1)

    def takes(self, case):
        return True

    def calls(self, operands):
        verb = "grouped_gemm" if operands.case.experts else "gemm"
        calls = []
        for x, w, ends in zip(operands.activations, operands.weights, operands.ends):
            out = operands.output()
            a = None if operands.case.activations == "BF16" else x.of(self.mxq)
            b, left = w.of(self.mxq), self.mxq.plain(x, ends) if a is None else None
            run, self.implementation = self.mxq.verb(verb, self.options, left or a.handle, b.handle, self.mxq.plain(out))
            calls.append(lambda run=run, out=out, keep=(a, b, x): (run(), out)[1])
        return calls
