"""The report as one HTML file: `document` joins its parts, `charts` says what is drawn, `script.js` draws it."""
