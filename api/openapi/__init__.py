"""What the OpenAPI document says beyond the routes: access, links, examples."""
