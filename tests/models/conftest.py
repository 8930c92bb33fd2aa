"""One thread: these models are too small for two, and the machine may be busy."""

import torch

torch.set_num_threads(1)
