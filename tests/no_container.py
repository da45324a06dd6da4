"""A pytest plugin for PyMongo's suite: the driver takes this machine for no container.

The handshakes that the suite's cases expect are those of a driver outside a container, and build
machines often are one. Nothing here touches what is sent otherwise, or the server.
"""

import os

from pymongo import pool_options

pool_options.DOCKER_ENV_PATH = os.path.join(os.devnull, "none")
