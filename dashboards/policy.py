"""The Content-Security-Policy that every page is served under: nothing inline, nothing evaluated, nothing foreign."""

EMPTY_STYLE_ELEMENT = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""SHA-256 of the empty string: Plotly adds one empty <style> element and fills it through the CSS object model, which
is all that it needs; without this hash its figures lose their cursors and hover layers."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        f"style-src 'self' {EMPTY_STYLE_ELEMENT}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""The value of the header, for every answer that a browser may render."""
