"""Token ids for training: tokenizers, by kernels where they are understood, and the stages that write token ids."""
