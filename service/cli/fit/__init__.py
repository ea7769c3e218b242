"""`daband fit`: two tables in, an arm for every row of the target out, without a server."""
