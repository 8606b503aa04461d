"""Pre-tuning: collect launches, measure configurations, build decision trees, evaluate them."""
