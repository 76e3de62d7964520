"""The report of an experiment: figures, and one page that holds them all."""

from eva_lab.reports.page import write_report

__all__ = ["write_report"]
