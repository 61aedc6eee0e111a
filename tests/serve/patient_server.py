"""The lean server, on a machine so busy that milliseconds and seconds mean nothing: `patient_server.py serve …`.

Its workers wait as long as it takes for each other to accept a caller, and all deaths of workers are close together.
"""

import sys

from fundoscope.cli.main import main
from fundoscope.serve import launch
from fundoscope.serve.port import FairSocket

FairSocket.PATIENCE_S = launch.QUICK_S = 3600.0
sys.exit(main(sys.argv[1:]))
