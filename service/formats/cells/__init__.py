"""Single cells out of .h5ad files, read by h5py alone: genes become numeric columns of a table."""
