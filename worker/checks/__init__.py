"""Promises of every optimizer, shown on the smallest real models. Shipped, so that anybody's optimizer can be held to
it."""
