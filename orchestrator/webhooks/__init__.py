"""Webhooks outside of the database: where they may go, how they are signed, the thread that posts them."""
