"""The inspector: a page that shows alignments, and the HTTP API beneath it."""

from latentalign.extras import require

require("serve", purpose="the inspector")
