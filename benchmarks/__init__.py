"""What Slackwater costs: seeded data, results checked before they are timed, ratios in one run."""
