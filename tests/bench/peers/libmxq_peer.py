"""libmxq itself, by the implementation that it chooses."""

NAME = "libmxq"


class Peer:
    def __init__(self, library, row_invariant=False, swizzled=False):
        self.mxq, self.version, self.implementation = library, library.functions.mxq_version_string().decode(), ""
        self.options, self.swizzled = None, swizzled
        if row_invariant:
            self.options = library.create("mxq_gemm_options_create")
            library.call("mxq_gemm_options_set_row_invariant", self.options, 1)

    def takes(self, case):
        return not self.swizzled or case.weights != "FP8_E4M3"

    def weights(self, operands):
        if not self.swizzled:
            return [w.of(self.mxq) for w in operands.weights]
        swizzled = {id(w): w.of(self.mxq).swizzle() for w in operands.weights}
        return [swizzled[id(w)] for w in operands.weights]

    def calls(self, operands):
        verb = "grouped_gemm" if operands.case.experts else "gemm"
        calls = []
        for x, b, ends in zip(operands.activations, self.weights(operands), operands.ends):
            out = operands.output()
            a = None if operands.case.activations == "BF16" else x.of(self.mxq)
            left = self.mxq.plain(x, ends) if a is None else None
            run, self.implementation = self.mxq.verb(verb, self.options, left or a.handle, b.handle, self.mxq.plain(out))
            calls.append(lambda run=run, out=out, keep=(a, b, x): (run(), out)[1])
        return calls
