"""Tasks whose arms are the ten digits: MNIST, MNIST-M, changed MNIST, and digits drawn in fonts."""
