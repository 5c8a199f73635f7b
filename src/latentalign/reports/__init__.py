from latentalign.extras import require

require("reports", purpose="a report or picture")
