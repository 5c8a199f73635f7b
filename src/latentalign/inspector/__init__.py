"""The inspector: a page to look at alignments, and the HTTP API beneath it."""

from latentalign.extras import require

require("serve", purpose="the inspector")
