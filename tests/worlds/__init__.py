"""Random small worlds through the production loop, and oracles that know nothing of features."""
