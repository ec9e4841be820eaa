"""Code at another ref or directory: which tree it is, where its files lie, and which packages it asks for."""
