"""torch's BF16 product of the decoded weights: what a user has without a quantized product."""
import torch

NAME = "torch"


class Peer:
    version = torch.__version__

    def takes(self, case):
        return True

    def calls(self, operands):
        """One call for each copy of the operands, each of which returns its D."""
        if operands.case.experts:
            return [lambda x=x, w=w.transpose(1, 2), ends=ends: torch._grouped_mm(x, w, ends)
                    for x, w, ends in zip(operands.tokens, operands.plain_weights, operands.ends)]
        out = operands.output()
        return [lambda x=x, w=w: torch.mm(x, w.t(), out=out) for x, w in zip(operands.tokens, operands.plain_weights)]
