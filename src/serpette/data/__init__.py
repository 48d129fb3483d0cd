"""What goes in: image folders, tables, HDF5; splits, decoding, fingerprints, the demo set."""
