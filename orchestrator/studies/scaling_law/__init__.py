"""Laws of AdaPM and AdamW."""
