"""Files of the pages' content: figures (SVG, PNG, PDF, HTML, CSV, JSON), tables, reports, bibliographies."""
