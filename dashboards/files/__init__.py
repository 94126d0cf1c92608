"""What leaves the pages as a file: figures (SVG, PNG, PDF, HTML, CSV, JSON), tables, reports, bibliographies."""
