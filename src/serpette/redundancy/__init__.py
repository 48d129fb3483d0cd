"""How redundant every site of a model is: from images to a profile."""
