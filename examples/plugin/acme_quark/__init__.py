"""What Acme adds to quark-format: a target and a finding."""
