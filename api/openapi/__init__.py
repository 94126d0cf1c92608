"""The OpenAPI document and the pages of docs/reference that are written from the code."""
