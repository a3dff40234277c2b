"""The search for the unpublished protocol behind a published table."""
