"""The decision service: HTTP, storage, background work, command line."""

import os

# Before numpy and torch load: one thread a process. Small matrices are no faster on more, serving
# and training would take each other's cores, and the same log must give the same bytes whatever
# number of cores a machine has. Set the variables yourself to choose otherwise.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")
