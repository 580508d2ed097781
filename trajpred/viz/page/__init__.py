"""One self-contained web page that shows scenarios and their forecasts; opens from disk."""

from trajpred.viz.page.write import save_page, write_page

__all__ = ["save_page", "write_page"]
