"""`python -m quark_format` is `quark-validate`."""

from quark_format.validators.cli import main

if __name__ == "__main__":
    main()
