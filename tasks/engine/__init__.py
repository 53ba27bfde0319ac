"""Where the work on parts of a table is done: on the cores of this machine, or on those of a Dask cluster."""
