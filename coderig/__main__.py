"""`python -m coderig` is the command `coderig`."""

from coderig.cli import main

raise SystemExit(main())
