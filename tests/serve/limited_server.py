"""The lean server with other limits: `limited_server.py MODULE.NAME=NUMBER … serve …`, of modules below serve/.

`files=NUMBER` limits its open files, as a platform would.
"""

import resource
import sys
from importlib import import_module

from fundoscope.cli.main import main

while "=" in sys.argv[1]:
    name, _, number = sys.argv.pop(1).partition("=")
    if name == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(number), int(number)))
        continue
    module = import_module("fundoscope.serve." + name.partition(".")[0])
    assert hasattr(module, name.partition(".")[2]), name
    setattr(module, name.partition(".")[2], float(number))
sys.exit(main(sys.argv[1:]))
