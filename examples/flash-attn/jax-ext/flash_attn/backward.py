"""Gradients of attention, by the kernels of the platform."""

from .tpu_backward import backward_tpu
from .triton_backward import backward_gpu


def gradients(q, k, v, dout, lse, delta, *, options):
    """(dq, dk, dv). The probabilities are computed again from `lse`.

    Args:
        q, k, v, dout: laid out as `options` says.
        lse, delta: (B, Hq, Sq) float32; delta is the row sum of dout * out, less the gradient of
            lse.
    """
    shared = {"causal": options.causal, "shift": options.shift, "scale": options.scale}
    if options.platform == "gpu":
        return backward_gpu(q, k, v, dout, lse, delta, heads_axis=options.heads_axis, **shared)
    if options.heads_axis == 2:
        q, k, v, dout = (x.swapaxes(1, 2) for x in (q, k, v, dout))
    results = backward_tpu(q, k, v, dout, lse, delta, interpret=options.platform == "cpu", **shared)
    return tuple(x.swapaxes(1, 2) if options.heads_axis == 2 else x for x in results)
