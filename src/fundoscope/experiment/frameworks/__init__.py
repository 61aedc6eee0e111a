"""The frameworks of the workload `cnn`: each module here is the same training in one framework's own words."""

# Name -> what it is imported as. The module of that name here is our part of it.
FRAMEWORKS = {"mxnet": "mxnet", "pytorch": "torch", "tensorflow": "tensorflow", "jax": "jax"}
