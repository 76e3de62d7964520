"""The catalog of what is on sale, read from files."""

from eva_master.adapters.catalog.pricebook import FilePriceBook, load_catalog

__all__ = ["FilePriceBook", "load_catalog"]
