"""The report as one HTML file: `document` joins its parts, `charts` describes the charts, `drawing` draws them."""
