"""The report as one HTML file: `document` joins its parts, `charts` describes the charts, `script.js` draws them."""
