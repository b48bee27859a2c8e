"""`python -m serving.server`."""

import sys

from serving.server.main import main

sys.exit(main())
