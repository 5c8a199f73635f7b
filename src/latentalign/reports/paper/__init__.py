"""The paper's tables and figures: rows, measurements, published values, pages."""
