from fundoscope.model.backend import choose_backend, use_backend

# Before any test module imports Keras: the chatter off, determinism on.
use_backend(choose_backend())
