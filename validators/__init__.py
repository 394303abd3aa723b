"""The checks of `quark-validate`, one module per concern, their report and its reporters."""
