"""The front door: REST service, ingest for workers, typed client, command line. See ARCHITECTURE.md."""
