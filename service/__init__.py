"""The decision service: HTTP, storage, background work, command line."""

import os

# Before numpy and torch load: one thread per process. More threads do not speed up small matrices,
# serving and training would compete for cores, and the same log must give the same bytes on any number
# of cores. Variables that are already set win.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")

DEFAULT_METHOD = "daband-plus"  # of an experiment that names none
