"""Pages of the site that are made from the data of `schema/`; `pages.py` lists them."""
