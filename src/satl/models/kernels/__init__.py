"""The two large sums of the network as operators of their own: attention logits and pair scores.

Both are sums over a tensor that would not fit into memory for many classes. Registered as operators with their
own backward pass they are one node for ``torch.compile``, whatever they do inside: in chunks on a CPU
(:mod:`~satl.models.kernels.attention`, :mod:`~satl.models.kernels.pairs`), fused on CUDA (the ``triton_``
modules, loaded on first use there). Neither way waits for the device, adds atomically or depends on the order of
threads, so a result is repeated bit for bit.
"""
