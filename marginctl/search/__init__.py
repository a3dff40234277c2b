"""The search for the protocol behind a published table."""
