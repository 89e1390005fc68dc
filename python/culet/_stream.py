"""torch's current stream by its shortest way. Take `current` from the module at each call: the first puts torch's
own function in its place."""

import sys


def current(place):
    """The stream of a CUDA device, as a number."""
    torch = sys.modules["torch"]
    global current
    current = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
        lambda device: torch.cuda.current_stream(device).cuda_stream)
    return current(place)
