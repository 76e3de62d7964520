"""For those who write policies: clusters to plan for, and a suite that every policy passes.

``python -m eva_master.testing --policy NAME`` runs the suite over an installed policy and its
presets; a package's own tests subclass `policy_suite.PolicySuite`. Only the suite needs pytest
and Hypothesis, which the extra ``testing`` of the distribution installs.
"""
