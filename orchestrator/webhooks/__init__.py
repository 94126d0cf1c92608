"""Webhooks outside the database: where they may go, how they are signed, their records. `dispatch` posts them."""
