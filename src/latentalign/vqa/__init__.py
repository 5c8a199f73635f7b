from latentalign.extras import require

require("tasks", purpose="the task vqa")
