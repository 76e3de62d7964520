"""Reads the catalog of offerings from files."""

from eva_master.adapters.catalog.pricebook import current_types, load_catalog, named_in

__all__ = ["current_types", "load_catalog", "named_in"]
