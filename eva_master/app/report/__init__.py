"""The report of an experiment: figures, and one page that holds them all."""

from eva_master.app.report.page import write_report

__all__ = ["write_report"]
