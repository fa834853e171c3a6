# SPDX-License-Identifier: Apache-2.0
"""What `carrel env setup`, `carrel base build` and `carrel template build` do. carrel-client reads the command line and runs this:

    python3 -I -S -B -Xutf8 …/provision env-setup|base-build|template-build NAME VALUE …

Only the standard library, as Python 3.11 has it."""
import signal
import sys

from words import FAILED, Failure, say


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # not the traceback of Python's own
    what, asked = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2]))
    try:
        if what == "env-setup":
            import env_setup
            return env_setup.main(asked)
        if what == "base-build":
            import base_build
            return base_build.main(asked)
        import template_build
        return template_build.main(asked)
    except Failure as failure:
        say(failure)
        return FAILED


sys.exit(main())
