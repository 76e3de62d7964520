"""The catalog of what is on sale, read from files."""

from eva_master.adapters.catalog.pricebook import load_catalog

__all__ = ["load_catalog"]
