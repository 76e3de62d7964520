"""Reads the catalog of offerings from files."""

from eva_master.adapters.catalog.pricebook import load_catalog

__all__ = ["load_catalog"]
